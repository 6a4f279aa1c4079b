"""A simulated comparison on disk: metrics as Parquet, plots as PNG; run.json has everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entr_lab.objective import Method
from entr_lab.report.curves import Curve, plot_curves, smooth
from entr_lab.report.plane import plot_plane
from entr_lab.rules import BoundedRule
from entr_lab.sim.outcome import RunRecord

__all__ = ["write_curves", "write_metrics", "write_planes"]

_SMOOTHING = 10
"""Updates over which the plotted metrics of single batches are averaged."""

_PLOTS: tuple[tuple[str, str, str, bool, float], ...] = (
    ("entropy_mu", "behaviour entropy of the training tokens", "nats", False, 1.0),
    ("masked_frac", "tokens dropped by the rule", "% of trainable tokens", True, 100.0),
    ("all_m2", "M2: mean δ² before the rule", "nats²", True, 1.0),
    ("kept_ratio_sq", "E[r²] of kept tokens", "", True, 1.0),
)
"""(metric, title, label, logarithmic, factor) of the plots beside the reward."""


def write_metrics(runs: Sequence[RunRecord], out: Path) -> None:
    """Write `updates.parquet` (one row a run and update) and `evaluations.parquet` (one row a run and evaluation)."""
    _write_table(out / "updates.parquet", runs, lambda run: {"update": np.arange(run.updates), **run.metrics})
    _write_table(
        out / "evaluations.parquet",
        runs,
        lambda run: {"updates": run.eval_updates, "reward": run.eval_reward, "entropy": run.eval_entropy},
    )


def _write_table(
    path: Path, runs: Sequence[RunRecord], columns: Callable[[RunRecord], Mapping[str, NDArray[Any]]]
) -> None:
    tables = []
    for run in runs:
        data = columns(run)
        length = len(next(iter(data.values())))
        labels = {"method": pa.array([run.method] * length), "seed": np.full(length, run.seed)}
        tables.append(pa.table({**labels, **data}))
    pq.write_table(pa.concat_tables(tables), path)


def write_curves(methods: Sequence[Method], runs: Sequence[RunRecord], out: Path) -> None:
    """Write reward.png and one PNG per metric of `_PLOTS`, over updates, mean and 95 % band over seeds.

    Runs of an interrupted comparison are cut to the shortest of their method.
    """
    grouped = {method.name: [run for run in runs if run.method == method.name] for method in methods}
    grouped = {name: found for name, found in grouped.items() if found}
    reward = {name: _curve([(run.eval_updates, run.eval_reward) for run in found]) for name, found in grouped.items()}
    plot_curves(reward, out / "reward.png", title="reward of on-policy evaluations", label="mean reward")
    for metric, title, label, log_scale, unit in _PLOTS:
        curves = {
            name: _curve([(np.arange(run.updates), run.metrics[metric]) for run in found], _SMOOTHING)
            for name, found in grouped.items()
        }
        plot_curves(curves, out / f"{metric}.png", title=title, label=label, log_scale=log_scale, unit=unit)


def _curve(trajectories: Sequence[tuple[NDArray[Any], NDArray[Any]]], width: int = 1) -> Curve:
    length = min(len(x) for x, _ in trajectories)
    y = np.stack([values[:length].astype(np.float64) for _, values in trajectories])
    return Curve(trajectories[0][0][:length].astype(np.float64), smooth(y, width))


def write_planes(methods: Sequence[Method], runs: Sequence[RunRecord], out: Path) -> None:
    """Write plane-METHOD.png for the first seed of each asynchronous method: tokens and every method's boundary."""
    bounded = [method.rule for method in methods if isinstance(method.rule, BoundedRule)]
    rules = list({rule.name: rule for rule in bounded}.values())
    for method in methods:
        run = next((run for run in runs if run.method == method.name and run.snapshots), None)
        if run is None or method.synchronous:
            continue
        name = "".join(character if character.isalnum() or character in "-." else "_" for character in method.name)
        plot_plane(run.snapshots, rules, out / f"plane-{name}.png", title=f"{method.name}, seed {run.seed}")
