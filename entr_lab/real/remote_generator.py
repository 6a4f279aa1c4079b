"""The driver's end of a generator actor, and the start of both. Ours."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

from entr_lab.errors import EngineError, check_range
from entr_lab.real.actors import GeneratorActor
from entr_lab.real.courier import Courier
from entr_lab.real.desk import Reply, Round
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.proof import Proof
from entr_lab.real.ray_errors import as_engine_errors
from entr_lab.real.records import Completion, SamplingSpec
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["RemoteGenerator", "spawn_generators"]

_GRACE: Final = 10.0
"""Seconds that an actor gets to end by itself before it is killed."""
_CONCURRENCY: Final = 1000
"""Calls that may wait in one actor."""


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
        self._courier = Courier(self._exchange)

    async def ready(self) -> int:
        """Wait until the engine runs and return the actor's process id."""
        answer: int = await self._call("ready")
        return answer

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """See `Generator.generate`."""
        return await self._courier.generate(prompt_ids, sampling, n, request_id)

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

    async def _exchange(self, message: Round) -> Reply:
        reply: Reply = await self._call("exchange", message)
        return reply

    async def _call(self, method: str, *arguments: Any) -> Any:
        failed, gone = f"{self.name} failed in {method}", f"{self.name} is gone or restarting"
        with as_engine_errors(failed, gone, "revive it with the current weights"):
            return await getattr(self.handle, method).remote(*arguments)


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
