"""Simulated runs as rows of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entr_lab.objective import Method
from entr_lab.report.comparison import Comparison, MethodRuns
from entr_lab.sim.outcome import RunRecord, RunSummary, summarise

__all__ = ["comparison_data", "method_runs"]


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
