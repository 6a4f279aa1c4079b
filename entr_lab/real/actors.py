"""Generators in processes of their own: a thin Ray actor around `Generator`, and the driver's end of it.

The actor's methods carry the names that vLLM's `RayVLLMWeightSyncClient` calls, so the same actor serves weights from
shared memory and from vLLM's own GPU transports. An engine whose core died never recovers: the actor tells the caller,
leaves, and Ray starts it again, empty; `RemoteGenerator.revive` waits for that and pushes the current weights. Ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from entr_lab.errors import EngineError, EntrLabError, check_range
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.generator import Generator
from entr_lab.real.parcels import unpacked
from entr_lab.real.proof import Proof
from entr_lab.real.records import Completion, SampleCall, SamplingSpec
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["GeneratorActor", "RemoteGenerator", "spawn_generators"]

_FAREWELL: Final = 0.5
"""Seconds between an actor's last answer and its exit, so that the answer arrives."""
_GRACE: Final = 10.0
"""Seconds that an actor gets to end by itself before it is killed."""
_WATCH: Final = 1.0
"""Seconds between two looks at the core of an idle engine."""
_CONCURRENCY: Final = 1000
"""Calls that may wait in one actor: rollouts, and the update that they wait for."""


class GeneratorActor:
    """The actor's class, undecorated. Call `ready` first; it starts the engine."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._generator: Generator | None = None
        self._starting = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    async def ready(self) -> int:
        """Start the engine if it is not running and return this process's id."""
        async with self._starting:
            if self._generator is None:
                self._generator = await Generator.start(self._settings)
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

    async def generate_many(self, calls: Sequence[SampleCall]) -> list[Completion]:
        """See `Generator.generate_many`."""
        answer: list[Completion] = await self._call("generate_many", calls)
        return answer

    async def abort(self, request_id: str | None = None) -> int:
        """See `Generator.abort`."""
        answer: int = await self._call("abort", request_id)
        return answer

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
        if self._watcher is not None:
            self._watcher.cancel()
        if self._generator is not None:
            await self._generator.shutdown()

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._generator is None:
            raise EngineError("this generator has (re)started without an engine; await ready() and push the weights.")
        try:
            return await operator.attrgetter(method)(self._generator)(*arguments)
        except EngineError:
            if self._generator.dead:
                self._leave()
            raise

    async def _watch(self) -> None:
        while self._generator is not None and not self._generator.dead:
            await asyncio.sleep(_WATCH)
        self._leave()

    def _leave(self) -> None:
        # ray.actor.exit_actor would count as intended, and Ray would not start the actor again.
        asyncio.get_running_loop().call_later(_FAREWELL, os._exit, 1)


class RemoteGenerator:
    """The driver's end of a generator actor: the interface of `Generator`, every failure an `EngineError`.

    Args:
        handle: of the actor.
        settings: that it was started with.
        name: for messages.
    """

    def __init__(self, handle: Any, settings: EngineSettings, name: str = "generator") -> None:
        self.handle = handle
        self.settings = settings
        self.name = name

    async def ready(self) -> int:
        """Wait until the engine runs and return the actor's process id."""
        answer: int = await self._call("ready")
        return answer

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """See `Generator.generate`."""
        answer: list[Completion] = await self._call("generate", prompt_ids, sampling, n, request_id)
        return answer

    async def generate_many(self, calls: Sequence[SampleCall]) -> list[Completion]:
        """See `Generator.generate_many`."""
        answer: list[Completion] = await self._call("generate_many", calls)
        return answer

    async def abort(self, request_id: str | None = None) -> int:
        """See `Generator.abort`."""
        answer: int = await self._call("abort", request_id)
        return answer

    async def health(self) -> dict[str, Any]:
        """See `Generator.health`."""
        answer: dict[str, Any] = await self._call("health")
        return answer

    async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> Proof | None:
        """See `Generator.update_weights`."""
        answer: Proof | None = await self._call("update_weights", manifest, clear_cache)
        return answer

    async def revive(self, manifest: WeightManifest, *, timeout: float = 180.0) -> Proof | None:
        """Wait until Ray has started the actor again, start its engine and push the current weights.

        Raises:
            EngineError: it is not back after `timeout` seconds, or the weights fail their proof.
        """
        check_range("timeout of revive", timeout, low=0.0)
        deadline = time.monotonic() + timeout
        while True:
            try:
                await self.ready()
                break
            except EngineError as error:
                if time.monotonic() > deadline:
                    raise EngineError(f"{self.name} did not come back within {timeout:g} s: {error}") from error
                await asyncio.sleep(0.5)
        return await self.update_weights(manifest, clear_cache=True)

    async def shutdown(self) -> None:
        """Stop the engine and the actor; a dead one counts as stopped."""
        import ray

        with contextlib.suppress(EngineError, TimeoutError):
            await self._call("shutdown")
            # A killed actor would take Python's semaphore tracker with it and leave semaphores in shared memory.
            await asyncio.wait_for(self._call("__ray_terminate__"), _GRACE)
        with contextlib.suppress(Exception):
            ray.kill(self.handle)

    async def _call(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await getattr(self.handle, method).remote(*arguments)
        except RayTaskError as error:
            if isinstance(error.cause, EntrLabError):
                raise error.cause from None
            raise EngineError(f"{self.name} failed in {method}: {error.cause!r}") from error
        except RayError as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(
                f"{self.name} is gone or restarting ({reason}); revive it with the current weights."
            ) from error


def spawn_generators(
    settings: EngineSettings,
    count: int = 1,
    *,
    cpus: float = 1.0,
    max_restarts: int = 3,
    environment: dict[str, str] | None = None,
) -> list[RemoteGenerator]:
    """Start `count` generator actors on the running cluster. Their engines start with `ready`.

    Args:
        settings: of each engine.
        count: actors.
        cpus: CPUs that Ray reserves for each; GPUs follow from the settings.
        max_restarts: times that Ray starts an actor again.
        environment: more environment variables.

    Raises:
        RangeError: `count` is below 1.
    """
    check_range("number of generators", count, low=1)
    import ray

    actor = ray.remote(GeneratorActor).options(
        num_cpus=cpus,
        num_gpus=settings.tensor_parallel if settings.device == "cuda" else 0,
        max_restarts=max_restarts,
        max_task_retries=0,
        max_concurrency=_CONCURRENCY,
        runtime_env={"env_vars": settings.environment() | (environment or {})},
    )
    return [RemoteGenerator(actor.remote(settings), settings, f"generator {place}") for place in range(count)]
