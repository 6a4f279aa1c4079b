"""New weights into a running engine: pause, transfer, label, resume. Between pause and resume no token is sampled.

From shared memory the engine loads by itself; over NCCL and IPC the trainer drives vLLM's protocol (start, receive,
finish) from its side, and each of its calls waits until generation is paused. Ours, on vLLM's weight transfer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from entr_lab.errors import EngineError
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["EngineUpdates", "Guard"]

Guard = Callable[[Awaitable[Any]], Awaitable[Any]]
"""Awaits a call of the engine and turns every failure into an `EngineError`."""


class EngineUpdates:
    """The updates of one engine.

    Args:
        engine: `AsyncLLM`.
        transfer: how weights arrive.
        guard: around every call of the engine.
    """

    def __init__(self, engine: Any, transfer: str, guard: Guard) -> None:
        self.version = -1
        """Of the weights in the engine; −1 until the first update."""
        self.broken = ""
        """Why the engine's weights are a mixture; empty while they are not."""
        self._engine = engine
        self._transfer = transfer
        self._guard = guard
        self._paused = asyncio.Event()
        self._received = asyncio.Event()

    async def check(self, manifest: WeightManifest) -> None:
        """Let the workers read and check a published file; the weights are not touched.

        Raises:
            EngineError: a worker found the file wrong.
        """
        if self._transfer != "shm":
            return
        found = await self._guard(self._engine.collective_rpc("check_weights", args=(manifest.to_wire(),)))
        if wrong := next((answer for answer in found if answer), ""):
            raise EngineError(wrong)

    async def exchange(self, manifest: WeightManifest, clear_cache: bool) -> None:
        """Replace the weights.

        Raises:
            EngineError: it broke off; generation stays paused, since the weights are a mixture now.
        """
        # pause_generation would sleep 20 ms for the caller's comfort; the pause itself is complete without it.
        pause = getattr(self._engine.engine_core, "pause_scheduler_async", self._engine.pause_generation)
        await self._guard(pause(mode="keep", clear_cache=clear_cache))
        self._received.clear()
        self._paused.set()
        try:
            if self._transfer == "shm":
                take = self._engine.collective_rpc("take_weights", args=(manifest.to_wire(),))
            else:
                await self._received.wait()
                take = self._engine.collective_rpc("tag_weights", args=(manifest.version,))
            # Together: the engine stands still for every message that waits for another one's answer.
            label = self._engine.update_weight_version(str(manifest.version))
            await asyncio.gather(self._guard(take), self._guard(label))
        except BaseException as error:
            self.broken = f"an update to weights {manifest.version} broke off: {error}"
            raise
        finally:
            self._paused.clear()
        self.version = manifest.version
        await self._guard(self._engine.resume_generation())

    async def connect(self, request: Any) -> None:
        """Connect to the trainer."""
        await self._guard(self._engine.init_weight_transfer_engine(request))

    async def start(self) -> None:
        """Begin the trainer's part of an update once generation is paused."""
        await self._paused.wait()
        await self._guard(self._engine.start_weight_update())

    async def receive(self, request: Any) -> None:
        """Take one part of an update."""
        await self._guard(self._engine.update_weights(request))

    async def finish(self) -> None:
        """End the trainer's part; the version follows from the manifest."""
        await self._guard(self._engine.finish_weight_update())
        self._received.set()

    async def disconnect(self) -> None:
        """Disconnect from the trainer."""
        await self._guard(self._engine.shutdown_weight_transfer_engine())
