"""What one training run leaves behind, and the numbers that summarise it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FINAL_SHARE", "RunRecord", "RunSummary", "Snapshot", "summarise"]

FINAL_SHARE: Final = 0.2
"""Share of the evaluations, the last ones, that the final reward averages."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A sample of one update's tokens: the plane of (H, δ) with the rule's decision on it."""

    update: int
    entropy: Floats
    """`[n]` behaviour entropy, nats."""
    log_ratio: Floats
    """`[n]` δ, nats."""
    advantage: Floats
    """`[n]`."""
    keep: NDArray[np.bool_]
    """`[n]` the rule's decision."""


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """One (method, seed)."""

    method: str
    seed: int
    updates: int
    """Updates that were finished; fewer than asked if the run was interrupted."""
    eval_updates: NDArray[np.int64]
    """`[E]` finished updates at each evaluation."""
    eval_reward: Floats
    """`[E]` mean reward of on-policy rollouts of the clean policy."""
    eval_entropy: Floats
    """`[E]` mean entropy of that policy on its own rollouts, nats."""
    metrics: dict[str, Floats]
    """`[updates]` each: those of `entr_lab.diagnostics.METRICS`, and `reward`, `entropy_mu`, `gradient_norm`."""
    snapshots: tuple[Snapshot, ...] = ()
    failed_at: int | None = None
    """First update whose log π or gradient was not finite; the weights have stood still since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Scalars of one run."""

    final: float
    """Mean reward over the last 20 % of evaluations; NaN if the run failed."""
    auc: float
    """Mean reward over all evaluations; NaN if the run failed."""
    peak: float
    """Largest mean over as many consecutive evaluations as `final` averages."""
    collapsed: bool
    """`final` is below half of the largest single evaluation, or the run failed."""
    masked_frac: float
    """Mean masked fraction."""
    removed_entropy: float
    """Mean entropy of all removed tokens of the run (updates weighted by what they removed), nats; NaN if none."""
    kept_ratio_sq: float
    """Mean over updates of E[r²] of kept tokens."""
    all_m2: float
    """Mean δ² before the rule, nats²."""
    kl_k3: float
    """Mean k3 estimate of KL(μ‖π) before the rule, nats."""
    removed_outward_frac: float
    """Share of all removed tokens of the run with A·δ > 0; NaN if none was removed."""
    end_entropy: float
    """Mean policy entropy over the last 20 % of evaluations, nats."""


def summarise(run: RunRecord) -> RunSummary:
    """Return the scalars of one run.

    Note that `collapsed` compares with a single evaluation, the run's own peak, as in the measured tables.
    """
    count = max(1, round(FINAL_SHARE * len(run.eval_reward)))
    smooth = np.convolve(run.eval_reward, np.full(count, 1 / count), mode="valid")
    failed = run.failed_at is not None
    final = float("nan") if failed else float(run.eval_reward[-count:].mean())
    removed = run.metrics["masked_frac"] - run.metrics["unrecorded_frac"]
    return RunSummary(
        final=final,
        auc=float("nan") if failed else float(run.eval_reward.mean()),
        peak=float(smooth.max()),
        collapsed=failed or final < 0.5 * float(run.eval_reward.max()),
        masked_frac=_mean(run.metrics["masked_frac"]),
        removed_entropy=_weighted(run.metrics["removed_entropy"], removed),
        kept_ratio_sq=_mean(run.metrics["kept_ratio_sq"]),
        all_m2=_mean(run.metrics["all_m2"]),
        kl_k3=_mean(run.metrics["all_kl_k3"]),
        removed_outward_frac=_weighted(run.metrics["removed_outward_frac"], removed),
        end_entropy=float(run.eval_entropy[-count:].mean()),
    )


def _mean(values: Floats) -> float:
    return float(np.mean(values, dtype=np.float64)) if len(values) else float("nan")


def _weighted(values: Floats, weights: Floats) -> float:
    """Mean of `values` where something was removed, weighted by how much."""
    some = weights > 0
    return float(np.average(values[some], weights=weights[some])) if some.any() else float("nan")
