"""Small steps for readable tests: one worker, one token per version, rewards that differ."""

from __future__ import annotations

from typing import Any

from entr_lab.pipeline import (
    Admission,
    Batch,
    Order,
    Outcome,
    Pipeline,
    PipelineConfig,
    Prompt,
    Trajectory,
    VersionSpan,
    Wait,
)


def make(admission: Admission | None = None, *, prompts: int = 0, worker: str = "w", **settings: Any) -> Pipeline:
    """A pipeline of one-group batches of one rollout with one worker, unless told otherwise."""
    hooks = {name: settings.pop(name) for name in ("closed", "log") if name in settings}
    if callable(key := settings.get("order")) and not isinstance(key, Order):
        hooks["order"], settings["order"] = key, Order.CUSTOM
    settings = {"batch_groups": 1, "group_size": 1, **settings}
    pipeline = Pipeline(PipelineConfig(admission=admission or Admission.sync(), **settings), **hooks)
    pipeline.add_prompts(Prompt(f"p{i}", "ab"[i % 2], float(i)) for i in range(prompts))
    if worker:
        pipeline.join(worker, pipeline.version)
    return pipeline


def start(pipeline: Pipeline, slots: int = 1, worker: str = "w", now: float = 0.0) -> list[Trajectory]:
    """Dispatch, and insist that something starts."""
    answer = pipeline.dispatch(worker, slots, now)
    assert not isinstance(answer, Wait), answer
    return answer


def spans(*versions: int, each: int = 1) -> tuple[VersionSpan, ...]:
    """`each` tokens of every version in turn."""
    return tuple(VersionSpan(v, i * each, (i + 1) * each) for i, v in enumerate(versions))


def finish(pipeline: Pipeline, rollout: Trajectory, *versions: int, now: float = 0.0, each: int = 1) -> Outcome:
    """Complete a rollout with tokens of these versions, or of the one it started under; its reward is its index."""
    tokens = spans(*(versions or (rollout.version,)), each=each)
    return pipeline.complete(rollout.ticket, tokens, float(rollout.index), now)


def take(pipeline: Pipeline) -> Batch:
    """Take a batch, and insist on one."""
    answer = pipeline.take()
    assert isinstance(answer, Batch), answer
    return answer


def load(pipeline: Pipeline, worker: str = "w") -> None:
    """Load the newest weights, unless a running rollout holds them back."""
    plan = pipeline.plan_update(worker)
    if plan.version is not None:
        pipeline.update(worker, plan.version, 0.0)


def step(pipeline: Pipeline, *, worker: str | None = "w") -> Batch:
    """Take, publish, and load the new weights on a worker."""
    batch = take(pipeline)
    pipeline.publish(pipeline.version + pipeline.config.admission.updates_per_batch, 0.0)
    if worker is not None:
        load(pipeline, worker)
    return batch


def ids(batch: Batch) -> list[str]:
    """The prompts of a batch."""
    return [group.prompt.id for group in batch.groups]
