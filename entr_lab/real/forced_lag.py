"""Forced staleness on a real engine: every part of a trajectory is sampled under the stored version it was planned for.

Mode exact plans a first and a last version for each trajectory. It is cut into as many segments as there are versions,
of ⌈max_tokens / versions⌉ sampled tokens; a `VersionGate` lets one version at a time into the engine, the lowest that
is wanted first, and loads it when the calls before have ended. Each segment begins with its whole history as prompt, so
the key-value cache is recomputed under the segment's own weights: staleness without a mixed cache. Ours.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from entr_lab.errors import EngineError
from entr_lab.real.episode import SamplesTokens
from entr_lab.real.ports import GeneratorPort
from entr_lab.real.records import Completion, SamplingSpec
from entr_lab.real.version_shelf import VersionShelf

__all__ = ["PlannedTrajectory", "VersionGate"]


class VersionGate:
    """Lets calls into one generator, one weight version at a time.

    Args:
        generator: whose weights are changed.
        shelf: holds the versions.
    """

    def __init__(self, generator: GeneratorPort, shelf: VersionShelf) -> None:
        self._generator, self._shelf = generator, shelf
        self._waiting: Counter[int] = Counter()
        self._inside = 0
        self._changed = asyncio.Condition()
        self.current = -1
        """Version in the engine."""
        self.loads = 0
        """Times that another version was loaded."""

    async def generate(
        self,
        version: int,
        call: SamplesTokens,
        prompt_ids: Sequence[int],
        sampling: SamplingSpec,
        request_id: str | None,
    ) -> Completion:
        """Sample one completion under `version`, as soon as its turn comes.

        Raises:
            EngineError: see the generator; or a token is of another version.
        """
        await self._enter(version)
        try:
            (completion,) = await call.generate(prompt_ids, sampling, 1, request_id)
        finally:
            async with self._changed:
                self._inside -= 1
                self._changed.notify_all()
        if (completion.weight_version != version).any():
            found = sorted(set(completion.weight_version.tolist()))
            raise EngineError(f"a segment planned for weights {version} has tokens of {found}; restart the generator.")
        return completion

    async def _enter(self, version: int) -> None:
        async with self._changed:
            self._waiting[version] += 1
            try:
                await self._changed.wait_for(lambda: self._may_enter(version))
                if self.current != version:
                    with self._shelf.loading(version) as manifest:
                        await self._generator.update_weights(manifest, clear_cache=True)
                    self.current = version
                    self.loads += 1
                self._inside += 1
            finally:
                self._waiting -= Counter([version])
                self._changed.notify_all()

    def _may_enter(self, version: int) -> bool:
        return version == min(self._waiting) and (self.current == version or not self._inside)


class PlannedTrajectory:
    """The generator that one trajectory sees: it moves through its planned versions as its tokens come.

    Args:
        gate: of the worker.
        call: the worker's generator.
        first, last: planned versions.
        max_tokens: most tokens of the trajectory.
    """

    def __init__(self, gate: VersionGate, call: SamplesTokens, first: int, last: int, max_tokens: int) -> None:
        self._gate, self._call = gate, call
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
            here = replace(sampling, max_tokens=min(left, room))
            piece = await self._gate.generate(self._first + place, self._call, history, here, request_id)
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
