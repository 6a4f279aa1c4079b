"""The trainer in processes of its own: Ray actors around `TrainerHost`, and the driver's end of them.

With several processes each method is called in all of them, and the first one's answer is taken. Ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from entr_lab.errors import EngineError, EntrLabError
from entr_lab.real.config import RunConfig
from entr_lab.real.parcels import send
from entr_lab.real.ports import StepResult, TrainerState
from entr_lab.real.processes import step_aside
from entr_lab.real.ray_errors import as_engine_errors
from entr_lab.real.records import Rollout, SamplingSpec
from entr_lab.real.rendezvous import Rendezvous, meet, open_rendezvous
from entr_lab.real.self_check import BehaviourError
from entr_lab.real.trainer_host import Answers, TrainerHost
from entr_lab.real.weight_transfer import WeightManifest
from entr_lab.real.world import World

__all__ = ["RemoteTrainer", "TrainerActor", "spawn_trainer"]


_GRACE: Final = 10.0
"""Seconds that the actors get to end by themselves before they are killed."""
_ROOM: Final = 120.0
"""Seconds that a cluster gets to make room for the trainer."""


class TrainerActor:
    """The actor's class, undecorated. Call `ready` first; it loads the model."""

    def __init__(self, config: RunConfig, model_path: str | Path, vocabulary: int, rank: int = 0) -> None:
        self._arguments = (config, model_path, vocabulary)
        self._rank, self._size = rank, config.trainer.processes
        self._travels = config.cluster.nodes > 1
        self._host: TrainerHost | None = None
        self._rendezvous: Rendezvous | None = None

    def rendezvous(self) -> Rendezvous:
        """Return where the other processes meet this one; call it on the first."""
        self._rendezvous = open_rendezvous(self._size)
        return self._rendezvous

    def ready(self, checkpoint: TrainerState | None = None, rendezvous: Rendezvous | None = None) -> int:
        """Meet the other processes, load the model and, on a resume, its state; return this process's id."""
        if self._host is None:
            world = World()
            if rendezvous is not None:
                world = meet(self._rendezvous or rendezvous, self._rank, self._size)
            self._host = TrainerHost(*self._arguments, checkpoint, world)
            if not self._arguments[0].cluster.gpus_per_node:
                step_aside()
        return os.getpid()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host."""
        if self._host is None:
            raise EngineError("this trainer has not loaded its model; await ready() first.")
        answer = getattr(self._host, method)(*arguments)
        return send(answer) if self._travels else answer

    def close(self) -> None:
        """Leave nothing in shared memory."""
        if self._host is not None:
            self._host.close()
        if self._rendezvous is not None:
            self._rendezvous.close()


class RemoteTrainer:
    """The driver's end of a trainer's actors, a `TrainerPort`; every failure is an `EntrLabError`.

    Args:
        handles: of the actors, the first process first.
        group: placement group of the actors, if they have one.
    """

    def __init__(self, handles: Sequence[Any], group: Any = None) -> None:
        self.handles = list(handles)
        self._group = group

    async def ready(self, checkpoint: TrainerState | None = None) -> list[int]:
        """Wait until the model is loaded and return the actors' process ids.

        Raises:
            EngineError: the cluster has no room for all processes, or the model cannot be loaded.
        """
        place = None
        if self._group is not None:
            await self._room()
        if len(self.handles) > 1:
            place = await self._await(self.handles[0].rendezvous.remote(), "rendezvous")
        calls = (self._await(handle.ready.remote(checkpoint, place), "ready") for handle in self.handles)
        return list(await asyncio.gather(*calls))

    async def _room(self) -> None:
        try:
            async with asyncio.timeout(_ROOM):
                await self._group.ready()
        except TimeoutError:
            raise EngineError(
                f"the cluster has no room for {len(self.handles)} training processes within {_ROOM:g} s: each wants "
                f"{self._group.bundle_specs[0]}; lower trainer.processes or add nodes."
            ) from None

    async def publish(self) -> WeightManifest:
        """See `TrainerHost.publish`."""
        answer: WeightManifest = await self._call("publish")
        return answer

    async def publish_perturbed(self) -> WeightManifest:
        """See `TrainerHost.publish_perturbed`."""
        answer: WeightManifest = await self._call("publish_perturbed")
        return answer

    async def check(self, answers: Answers, sampling: SamplingSpec, settings: Any) -> BehaviourError:
        """See `TrainerHost.check`."""
        answer: BehaviourError = await self._call("check", answers, sampling, settings)
        return answer

    async def step(self, groups: Sequence[Sequence[Rollout]], target_version: int, probe: bool) -> StepResult:
        """See `TrainerHost.step`."""
        answer: StepResult = await self._call("step", groups, target_version, probe)
        return answer

    async def release(self, manifest: WeightManifest) -> None:
        """See `TrainerHost.release`."""
        await self._call("release", manifest)

    async def state(self) -> TrainerState:
        """See `TrainerHost.state`."""
        answer: TrainerState = await self._call("state")
        return answer

    async def shutdown(self) -> None:
        """Free shared memory and stop the actors; dead ones count as stopped."""
        import ray

        with contextlib.suppress(EntrLabError, TimeoutError):
            await asyncio.gather(*(self._await(handle.close.remote(), "close") for handle in self.handles))
            # Of a killed actor Ray would print that it died.
            ends = (self._await(handle.__ray_terminate__.remote(), "shutdown") for handle in self.handles)
            await asyncio.wait_for(asyncio.gather(*ends, return_exceptions=True), _GRACE)
        for handle in self.handles:
            with contextlib.suppress(Exception):
                ray.kill(handle)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)

    async def _call(self, method: str, *arguments: Any) -> Any:
        if len(self.handles) > 1:
            import ray

            arguments = tuple(ray.put(argument) for argument in arguments)  # once, not once for each process
        calls = (self._await(handle.call.remote(method, *arguments), method) for handle in self.handles)
        return (await asyncio.gather(*calls))[0]

    async def _await(self, answer: Any, method: str) -> Any:
        failed, gone = f"the trainer failed in {method}", "the trainer's process is gone"
        with as_engine_errors(failed, gone, "resume from the last checkpoint"):
            return await answer


def spawn_trainer(
    config: RunConfig, model_path: str | Path, vocabulary: int, *, environment: dict[str, str] | None = None
) -> RemoteTrainer:
    """Start the trainer's actors on the running cluster; the model is loaded with `ready`.

    Several processes are placed together, on as few nodes as have room.

    Args:
        config: of the run.
        model_path: local folder or hub name.
        vocabulary: see `TrainerHost`.
        environment: more environment variables.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    size, gpus = config.trainer.processes, 1 if config.cluster.gpus_per_node else 0
    variables = {"TOKENIZERS_PARALLELISM": "false"} | ({} if gpus else {"OMP_NUM_THREADS": "1"}) | (environment or {})
    options: dict[str, Any] = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
    group = None
    if size > 1:
        bundle = {"CPU": 1.0} | ({"GPU": 1.0} if gpus else {})
        group = ray.util.placement_group([bundle] * size, strategy="PACK")
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group)
    actor = ray.remote(TrainerActor).options(**options, runtime_env={"env_vars": variables})
    return RemoteTrainer([actor.remote(config, model_path, vocabulary, rank) for rank in range(size)], group)
