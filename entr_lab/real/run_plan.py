"""What a run would start, before anything starts: one row for each process, for `--dry-run`. Ours."""

from __future__ import annotations

from dataclasses import dataclass

from entr_lab.pipeline import Mode
from entr_lab.real.config import RunConfig

__all__ = ["ProcessPlan", "plan_processes"]


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """One kind of process.

    Args:
        name: of it.
        count: how many.
        place: CPU, or GPUs of each.
        holds: what is in its memory.
    """

    name: str
    count: int
    place: str
    holds: str


def plan_processes(config: RunConfig) -> list[ProcessPlan]:
    """Return what each process will hold."""
    gpus, rollout, admission = config.cluster.gpus_per_node, config.rollout, config.admission
    groups = rollout.batch_groups * (admission.max_inter + admission.max_intra + 1) // admission.updates_per_batch
    versions = admission.max_inter + admission.max_intra + 1
    kept = f"{versions} stored versions" if config.asynchrony.mode is Mode.EXACT else "the newest version"
    probe = f", {versions} versions for the attribution" if config.attribution.every else ""
    cache = f"{rollout.gpu_memory_utilization:.0%} of its GPUs" if gpus else f"{rollout.kv_cache_mib} MiB"
    trainer = f"float32 weights, gradients, two Adam moments; {config.trainer.micro_batch_tokens} tokens a pass{probe}"
    engine = f"{rollout.engine_dtype} weights, key-value cache of {cache}, {rollout.max_sequences} rollouts at a time"
    driver = (
        f"pipeline, about {max(groups, rollout.batch_groups)} groups of rollouts; mode {config.asynchrony.mode.value}: "
        f"inter lag at most {admission.max_inter}, intra lag at most {admission.max_intra}"
    )
    per_engine = f"{config.cluster.tensor_parallel} GPU" if gpus else "one CPU thread"
    return [
        ProcessPlan("driver", 1, "CPU", driver),
        ProcessPlan("trainer", config.trainer.processes, "1 GPU" if gpus else "one CPU thread", trainer),
        ProcessPlan("generator", rollout.generators, per_engine, engine),
        ProcessPlan("shared memory", 1, "RAM", f"{rollout.engine_dtype} weights: {kept}"),
    ]
