"""The trainer in a process of its own: a Ray actor around `TrainerHost`, and the driver's end of it. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entr_lab.errors import EngineError, EntrLabError
from entr_lab.real.config import RunConfig
from entr_lab.real.ports import StepResult, TrainerState
from entr_lab.real.records import Rollout, SamplingSpec
from entr_lab.real.self_check import BehaviourError
from entr_lab.real.trainer_host import Answers, TrainerHost
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["RemoteTrainer", "TrainerActor", "spawn_trainer"]


class TrainerActor:
    """The actor's class, undecorated. Call `ready` first; it loads the model."""

    def __init__(self, config: RunConfig, model_path: str | Path, vocabulary: int) -> None:
        self._arguments = (config, model_path, vocabulary)
        self._host: TrainerHost | None = None

    def ready(self, checkpoint: TrainerState | None = None) -> int:
        """Load the model and, on a resume, its state; return this process's id."""
        import os

        if self._host is None:
            self._host = TrainerHost(*self._arguments, checkpoint)
        return os.getpid()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the host."""
        if self._host is None:
            raise EngineError("this trainer has not loaded its model; await ready() first.")
        return getattr(self._host, method)(*arguments)


class RemoteTrainer:
    """The driver's end of a trainer actor, a `TrainerPort`; every failure is an `EntrLabError`.

    Args:
        handle: of the actor.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    async def ready(self, checkpoint: TrainerState | None = None) -> int:
        """Wait until the model is loaded and return the actor's process id."""
        answer: int = await self._await(self.handle.ready.remote(checkpoint), "ready")
        return answer

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
        """Free shared memory and stop the actor; a dead one counts as stopped."""
        import ray

        try:
            await self._call("close")
        except EntrLabError:
            pass
        finally:
            ray.kill(self.handle)

    async def _call(self, method: str, *arguments: Any) -> Any:
        return await self._await(self.handle.call.remote(method, *arguments), method)

    async def _await(self, answer: Any, method: str) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await answer
        except RayTaskError as error:
            if isinstance(error.cause, EntrLabError):
                raise error.cause from None
            raise EngineError(f"the trainer failed in {method}: {error.cause!r}") from error
        except RayError as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise EngineError(f"the trainer's process is gone ({reason}); resume from the last checkpoint.") from error


def spawn_trainer(
    config: RunConfig, model_path: str | Path, vocabulary: int, *, environment: dict[str, str] | None = None
) -> RemoteTrainer:
    """Start the trainer's actor on the running cluster; its model is loaded with `ready`.

    Args:
        config: of the run.
        model_path: local folder or hub name.
        vocabulary: see `TrainerHost`.
        environment: more environment variables.
    """
    import ray

    gpus = config.trainer_gpus
    variables = {"TOKENIZERS_PARALLELISM": "false"} | ({} if gpus else {"OMP_NUM_THREADS": "1"}) | (environment or {})
    actor = ray.remote(TrainerActor).options(
        num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0, runtime_env={"env_vars": variables}
    )
    return RemoteTrainer(actor.remote(config, model_path, vocabulary))
