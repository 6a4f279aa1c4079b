"""A simulated comparison on disk and as rows: metrics as Parquet, plots as PNG, everything else in run.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entr_lab.objective import Method
from entr_lab.report.comparison import Comparison, MethodRuns
from entr_lab.report.curves import Curve, plot_curves, smooth
from entr_lab.report.plane import plot_plane
from entr_lab.rules import BoundedRule
from entr_lab.sim.outcome import RunRecord, RunSummary, summarise

__all__ = ["comparison_data", "method_runs", "write_curves", "write_metrics", "write_planes"]

_SMOOTHING = 10
"""Updates over which the plotted metrics of single batches are averaged."""

_PLOTS: tuple[tuple[str, str, str, bool, float], ...] = (
    ("entropy_mu", "behaviour entropy of the training tokens", "nats", False, 1.0),
    ("masked_frac", "tokens dropped by the rule", "% of trainable tokens", True, 100.0),
    ("all_m2", "M2: mean δ² before the rule", "nats²", True, 1.0),
    ("kept_ratio_sq", "E[r²] of kept tokens", "", True, 1.0),
)
"""(metric, title, label, logarithmic, factor) of the plots beside the reward."""


def method_runs(methods: Sequence[Method], seeds: Sequence[int], runs: Iterable[RunRecord]) -> list[MethodRuns]:
    """Group run records by method, one entry a seed in the order of `seeds`; a missing run's numbers are NaN."""
    found = {(run.method, run.seed): run for run in runs}
    return [_gather(method, [found.get((method.name, seed)) for seed in seeds]) for method in methods]


def _gather(method: Method, runs: Sequence[RunRecord | None]) -> MethodRuns:
    summaries = [None if run is None else summarise(run) for run in runs]
    shown = [name for name in RunSummary.__dataclass_fields__ if name not in ("final", "collapsed")]

    def column(name: str) -> NDArray[np.float64]:
        return np.array([np.nan if summary is None else float(getattr(summary, name)) for summary in summaries])

    return MethodRuns(
        name=method.name,
        final=column("final"),
        collapsed=np.array([summary is not None and summary.collapsed for summary in summaries]),
        non_finite=np.array([run is not None and run.failed_at is not None for run in runs]),
        synchronous=method.synchronous,
        metrics={name: column(name) for name in shown},
    )


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data."""
    return asdict(comparison)


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
