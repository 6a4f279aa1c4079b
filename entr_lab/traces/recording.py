"""Writing the trace of a real run: an observer of its batches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from entr_lab import __version__
from entr_lab.errors import EngineError
from entr_lab.real.config import RunConfig
from entr_lab.real.step_report import StepReport
from entr_lab.traces.schema import TraceMetadata
from entr_lab.traces.writer import TracedRollout, TraceWriter

__all__ = ["trace_observer", "traced"]


def traced(report: StepReport) -> list[TracedRollout]:
    """Return the rollouts of a batch as the writer takes them; a rollout's number is its ticket."""
    tickets = [(group.id, trajectory.ticket) for group in report.batch.groups for trajectory in group.done]
    rollouts = [rollout for group in report.rollouts for rollout in group]
    train = report.train
    columns = zip(tickets, rollouts, train.logp_pi, train.keep, train.advantage.tolist(), strict=True)
    return [
        TracedRollout(
            group=group,
            sequence=ticket,
            prompt_ids=rollout.prompt_ids,
            token_ids=rollout.token_ids,
            trainable=rollout.trainable,
            turn=rollout.turn,
            weight_version=rollout.weight_version,
            logp_mu=rollout.logp_mu,
            entropy_mu=rollout.entropy_mu,
            collision_mu=rollout.collision_mu,
            logp_pi=logp_pi,
            keep=keep,
            reward=rollout.reward,
            advantage=advantage,
            sample_id=str(rollout.sample.get("id", "")),
            source=str(rollout.sample.get("source", "")),
            info=rollout.info,
        )
        for (group, ticket), rollout, logp_pi, keep, advantage in columns
    ]


def trace_observer(config: RunConfig, folder: Path, model: str, vocabulary: int) -> Callable[[StepReport], None]:
    """Return what writes each batch into the trace in `folder`; a folder that a resumed run began is continued.

    Args:
        config: of the run.
        folder: of the trace.
        model: that is trained, for the metadata.
        vocabulary: V.

    Raises:
        DataError: the folder holds another trace.
    """
    rollout = config.rollout
    metadata = TraceMetadata(
        source_version=__version__,
        method=config.method.name,
        model=model,
        vocabulary=vocabulary,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        engine_dtype=rollout.engine_dtype,
        trainer_dtype=config.model.dtype,
        group_size=rollout.group_size,
        updates_per_batch=config.trainer.steps_per_batch,
        seed=config.seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    writer = TraceWriter(folder, metadata)

    def write(report: StepReport) -> None:
        try:
            writer.write(report.step, report.target_version, traced(report))
        except OSError as error:
            raise EngineError(
                f"the trace in {str(folder)!r} cannot be written ({error.strerror}); free space and resume, or set "
                f"log.traces = false."
            ) from None

    return write
