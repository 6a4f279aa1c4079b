"""A generator in a process of its own: a thin Ray actor around `Generator`.

The actor's methods carry the names that vLLM's `RayVLLMWeightSyncClient` calls, so the same actor serves weights from
shared memory and from vLLM's own GPU transports. An engine whose core died never recovers: the actor tells the caller,
leaves, and Ray starts it again, empty; `RemoteGenerator.revive` waits for that and pushes the current weights. Ours.
"""

from __future__ import annotations

import asyncio
import operator
import os
from collections.abc import Sequence
from typing import Any, Final

from entr_lab.errors import EngineError
from entr_lab.real.desk import Desk, Reply, Round
from entr_lab.real.engine_cpu import EngineCpu
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.generator import Generator
from entr_lab.real.parcels import unpacked
from entr_lab.real.processes import step_aside
from entr_lab.real.proof import Proof
from entr_lab.real.records import Completion, SamplingSpec
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["GeneratorActor"]

_FAREWELL: Final = 0.5
"""Seconds between an actor's last answer and its exit, so that the answer arrives."""
_WATCH: Final = 1.0
"""Seconds between two looks at the core of an idle engine."""


class GeneratorActor:
    """The actor's class, undecorated. Call `ready` first; it starts the engine."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._generator: Generator | None = None
        self._starting = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._desk = Desk(self.generate)
        self._cpu: EngineCpu | None = None
        self._closed = False

    async def ready(self) -> int:
        """Start the engine if it is not running and return this process's id."""
        async with self._starting:
            if self._generator is None:
                self._generator = await Generator.start(self._settings)
                if self._settings.device == "cpu":
                    step_aside()
                    await self._seat(self._generator)
                self._watcher = asyncio.create_task(self._watch())
        if self._generator.dead:
            self._leave()
            raise EngineError("the engine of this generator is dead; the actor is leaving to be started again.")
        return os.getpid()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """See `Generator.generate`."""
        answer: list[Completion] = await self._call("generate", prompt_ids, sampling, n, request_id)
        return answer

    async def exchange(self, message: Round) -> Reply:
        """See `Desk.exchange`."""
        return await self._desk.exchange(message)

    async def health(self) -> dict[str, Any]:
        """See `Generator.health`."""
        answer: dict[str, Any] = await self._call("health")
        return answer

    async def update_weights(self, update: Any, clear_cache: bool = False) -> Proof | None:
        """Run a whole update from a `WeightManifest`; take one part of one from a request of vLLM's protocol."""
        if not isinstance(update, WeightManifest):
            await self._call("updates.receive", update)
            return None
        async with unpacked(update) as manifest:
            answer: Proof | None = await self._call("update_weights", manifest, clear_cache)
        return answer

    async def init_weight_transfer_engine(self, request: Any) -> None:
        """See `EngineUpdates.connect`."""
        await self._call("updates.connect", request)

    async def start_weight_update(self) -> None:
        """See `EngineUpdates.start`."""
        await self._call("updates.start")

    async def finish_weight_update(self) -> None:
        """See `EngineUpdates.finish`."""
        await self._call("updates.finish")

    async def update_weight_version(self, version: str) -> None:
        """Do nothing: the version comes with the manifest, which the proof needs anyway."""

    async def shutdown_weight_transfer_engine(self) -> None:
        """See `EngineUpdates.disconnect`."""
        await self._call("updates.disconnect")

    async def shutdown(self) -> None:
        """Stop the engine; the actor may be killed afterwards without leaving anything behind."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        self._desk.close()
        if self._generator is not None:
            await self._generator.shutdown()
        if self._cpu is not None:
            self._cpu.release()

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._generator is None:
            raise EngineError("this generator has (re)started without an engine; await ready() and push the weights.")
        try:
            return await operator.attrgetter(method)(self._generator)(*arguments)
        except EngineError:
            if self._generator.dead:
                self._leave()
            raise

    async def _seat(self, generator: Generator) -> None:
        self._cpu = EngineCpu.claim() if self._settings.own_cpu else None
        if self._cpu is not None:
            self._cpu.seat((await generator.health())["core_pid"])

    async def _watch(self) -> None:
        while self._generator is not None and not self._generator.dead:
            await asyncio.sleep(_WATCH)
        self._leave()

    def _leave(self) -> None:
        if self._closed:  # an update that the end of the run cut off finds a dead engine too
            return
        # ray.actor.exit_actor would count as intended, and Ray would not start the actor again.
        asyncio.get_running_loop().call_later(_FAREWELL, os._exit, 1)
