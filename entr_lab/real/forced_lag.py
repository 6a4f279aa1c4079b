"""Forced staleness on a real engine: every part of a trajectory is sampled under the stored version it was planned for.

Mode exact plans a first and a last version for each trajectory. It is cut into as many segments as there are versions,
of ⌈max_tokens / versions⌉ sampled tokens. A `VersionGate` lets one version at a time into the engine, the lowest that
is wanted first: it loads it, sends all that wait for it, and turns to the next when they have ended. Each
segment begins with its whole history as prompt, so the key-value cache is recomputed under the segment's own weights:
staleness without a mixed cache. Ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from entr_lab.errors import EngineError
from entr_lab.real.ports import GeneratorPort
from entr_lab.real.records import Completion, SampleCall, SamplingSpec
from entr_lab.real.version_shelf import VersionShelf

__all__ = ["PlannedTrajectory", "VersionGate"]


@dataclass(frozen=True, slots=True)
class _Waiter:
    call: SampleCall
    answer: asyncio.Future[Completion]


class VersionGate:
    """Lets calls into one generator, one weight version at a time.

    Args:
        generator: whose weights are changed.
        shelf: holds the versions.
    """

    def __init__(self, generator: GeneratorPort, shelf: VersionShelf) -> None:
        self._generator, self._shelf = generator, shelf
        self._waiting: dict[tuple[bool, int], list[_Waiter]] = {}
        self._runner: asyncio.Task[None] | None = None
        self.current = -1
        """Version in the engine."""
        self.loads = 0
        """Times that another version was loaded."""

    async def generate(self, version: int, call: SampleCall, *, urgent: bool = False) -> Completion:
        """Sample one completion under `version`, as soon as its turn comes; `urgent` goes before all that is not.

        Raises:
            EngineError: see the generator; or a token is of another version.
            ProtocolError: the version is not kept.
        """
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((not urgent, version), []).append(_Waiter(call, answer))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        completion = await answer
        if (completion.weight_version != version).any():
            found = sorted(set(completion.weight_version.tolist()))
            raise EngineError(f"a segment planned for weights {version} has tokens of {found}; restart the generator.")
        return completion

    async def close(self) -> None:
        """Stop what runs here; callers must be gone."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # those that start together come together
            place = min(self._waiting)
            try:
                await self._load(place[1])
            except Exception as error:
                for waiter in self._waiting.pop(place):
                    if not waiter.answer.done():
                        waiter.answer.set_exception(error)
                continue
            waiters = [waiter for waiter in self._waiting.pop(place) if not waiter.answer.done()]
            await asyncio.gather(*map(self._serve, waiters))

    async def _load(self, version: int) -> None:
        if self.current == version:
            return
        with self._shelf.loading(version) as manifest:
            await self._generator.update_weights(manifest, clear_cache=True)
        self.current = version
        self.loads += 1

    async def _serve(self, waiter: _Waiter) -> None:
        """Give a waiter its completion; if it goes away, so does its call."""
        serving = asyncio.ensure_future(self._sample(waiter.call))
        waiter.answer.add_done_callback(lambda _: serving.cancel())
        try:
            await asyncio.wait([serving])
        finally:
            serving.cancel()
        if waiter.answer.done() or serving.cancelled():
            return
        error = serving.exception()
        if error is None:
            waiter.answer.set_result(serving.result())
        else:
            waiter.answer.set_exception(error)

    async def _sample(self, call: SampleCall) -> Completion:
        (completion,) = await self._generator.generate(call.prompt_ids, call.sampling, 1, call.request_id)
        return completion


class PlannedTrajectory:
    """The generator that one trajectory sees: it moves through its planned versions as its tokens come.

    Args:
        gate: of the worker.
        first, last: planned versions.
        max_tokens: most tokens of the trajectory.
        urgent: goes before what is not.
    """

    def __init__(self, gate: VersionGate, first: int, last: int, max_tokens: int, *, urgent: bool = False) -> None:
        self._gate, self._urgent = gate, urgent
        self._first, self._steps = first, last - first
        self._segment = -(-max_tokens // (self._steps + 1))
        self._sampled = 0

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """Sample one completion, in as many segments as it takes."""
        pieces: list[Completion] = []
        history, left = list(prompt_ids), sampling.max_tokens
        while True:
            place = min(self._sampled // self._segment, self._steps)
            room = left if place == self._steps else self._segment - self._sampled % self._segment
            call = SampleCall(tuple(history), replace(sampling, max_tokens=min(left, room)), request_id)
            piece = await self._gate.generate(self._first + place, call, urgent=self._urgent)
            pieces.append(piece)
            history += piece.token_ids.tolist()
            self._sampled += len(piece.token_ids)
            left -= len(piece.token_ids)
            if piece.finish_reason != "length" or left <= 0 or not len(piece.token_ids):
                return [_joined(pieces)]


def _joined(pieces: Sequence[Completion]) -> Completion:
    names = ("token_ids", "logp_mu", "entropy_mu", "collision_mu", "weight_version")
    columns = {name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in names}
    return Completion(**columns, finish_reason=pieces[-1].finish_reason)
