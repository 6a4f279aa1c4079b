"""Which methods survive: one row and one sentence a method, from final rewards over seeds.

The same comparison serves simulated and real runs. It never turns an interval that contains zero into a ranking:
such a pair is called not distinguishable. Intervals are not corrected for the number of comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import ShapeError
from entr_lab.report.intervals import Interval, mean_interval, paired_difference

__all__ = ["SURVIVAL_MARGIN", "Comparison", "MethodRow", "MethodRuns", "Verdict", "compare"]

SURVIVAL_MARGIN = 0.1
"""A method survives if its mean final reward is within this share of the reference's; chosen once, for reading."""


class Verdict(StrEnum):
    """`survives`: within 10 % of the reference. `degraded`: below. `collapsed`: at least half of the runs did."""

    SURVIVES = "survives"
    DEGRADED = "degraded"
    COLLAPSED = "collapsed"


@dataclass(frozen=True, slots=True)
class MethodRuns:
    """What one method did at each seed, in the same order of seeds for every method.

    Args:
        name: the method.
        final: `[n_seeds]` final reward; NaN where a run has none.
        collapsed: `[n_seeds]` bool.
        non_finite: `[n_seeds]` bool, the run's numbers became NaN or infinite and it was frozen; counts as collapsed.
        synchronous: the method is the reference.
        metrics: `[n_seeds]` each, averages over the run, of whatever the caller shows.
    """

    name: str
    final: NDArray[np.float64]
    collapsed: NDArray[np.bool_]
    non_finite: NDArray[np.bool_]
    synchronous: bool
    metrics: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One row of the comparison; differences are method − other, paired by seed, None against itself."""

    name: str
    final: Interval
    to_sync: Interval | None
    to_best: Interval | None
    n_collapsed: int
    n_non_finite: int
    n_runs: int
    metrics: dict[str, Interval]
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, in the order given.

    Args:
        rows: one a method.
        sync: name of the synchronous reference, None if it did not run.
        best: name of the asynchronous method with the highest mean final reward.
    """

    rows: list[MethodRow]
    sync: str | None
    best: str | None


def compare(methods: Sequence[MethodRuns]) -> Comparison:
    """Compare methods run at the same seeds.

    Raises:
        ShapeError: no method is given, or methods have different numbers of seeds.
    """
    if not methods:
        raise ShapeError("a comparison needs at least one method, got none.")
    sizes = {len(method.final) for method in methods}
    if len(sizes) != 1:
        raise ShapeError(f"every method must have run at the same seeds, got {sorted(sizes)} runs.")
    sync = next((method for method in methods if method.synchronous), None)
    contenders = [method for method in methods if not method.synchronous and np.isfinite(method.final).any()]
    best = max(contenders, key=lambda method: mean_interval(method.final).mean, default=None)
    rows = [_row(method, methods, sync, best) for method in methods]
    return Comparison(rows, sync.name if sync else None, best.name if best else None)


def _row(
    method: MethodRuns, methods: Sequence[MethodRuns], sync: MethodRuns | None, best: MethodRuns | None
) -> MethodRow:
    to_sync = None if sync is None or method is sync else paired_difference(method.final, sync.final)
    to_best = None if best is None or method is best else paired_difference(method.final, best.final)
    reference = sync if sync is not None else best
    verdict = _verdict(method, reference)
    lost = method.collapsed | method.non_finite
    return MethodRow(
        name=method.name,
        final=mean_interval(method.final),
        to_sync=to_sync,
        to_best=to_best,
        n_collapsed=int(lost.sum()),
        n_non_finite=int(method.non_finite.sum()),
        n_runs=len(method.final),
        metrics={name: mean_interval(values) for name, values in method.metrics.items()},
        verdict=verdict,
        sentence=_sentence(method, methods, reference, verdict),
    )


def _verdict(method: MethodRuns, reference: MethodRuns | None) -> Verdict:
    lost = method.collapsed | method.non_finite
    if 2 * lost.sum() >= len(lost):
        return Verdict.COLLAPSED
    if reference is None or method is reference:
        return Verdict.SURVIVES
    floor = (1.0 - SURVIVAL_MARGIN) * mean_interval(reference.final).mean
    return Verdict.SURVIVES if mean_interval(method.final).mean >= floor else Verdict.DEGRADED


def _sentence(method: MethodRuns, methods: Sequence[MethodRuns], reference: MethodRuns | None, verdict: Verdict) -> str:
    lost = int((method.collapsed | method.non_finite).sum())
    text = f"collapsed in {lost} of {len(method.final)} runs" if verdict is Verdict.COLLAPSED else verdict.value
    if verdict is not Verdict.COLLAPSED and lost:
        text += f", though {lost} of {len(method.final)} runs collapsed"
    if method.non_finite.any():
        text += f" ({int(method.non_finite.sum())} became non-finite)"
    if reference is None or method is reference:
        return text + ("; the reference" if method is reference else "")
    difference = paired_difference(method.final, reference.final)
    if difference.n < 2:
        return text + f"; {difference.signed()} against {reference.name}, one seed, so no interval"
    if difference.excludes_zero:
        text += f": {difference.signed()} against {reference.name}"
    peers = [
        other.name
        for other in methods
        if other is not method and not paired_difference(method.final, other.final).excludes_zero
    ]
    return text + (f"; not distinguishable from {', '.join(peers)}" if peers else "")
