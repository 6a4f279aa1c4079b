"""Everything that `entr-lab plan` says about a plan: both modes, paired over seeds, splits, one generator more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from entr_lab.errors import check_range
from entr_lab.report.intervals import Interval, mean_interval
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.plan_search import (
    Point,
    Progress,
    Runner,
    calibrated,
    one_more_generator,
    steps_for,
    synchronous_twin,
)
from entr_lab.sim.plan_splits import best, search_splits
from entr_lab.sim.time_level import simulate
from entr_lab.sim.time_stats import TimeResult

__all__ = ["PlanStudy", "Prediction", "study_plan"]

_ROLLOUTS = 40_000
_SAMPLE = 16


@dataclass(frozen=True, slots=True)
class Prediction:
    """A speed-up predicted one way, and what was published.

    Attributes:
        label: how it was predicted.
        speedup: tokens per second of the plan over its synchronous twin, on the same GPUs.
        sync_seconds, async_seconds: seconds per published step (the plan's batch if nothing was published).
        error: speedup / published − 1, against the nearer end of a published span; None without one.
    """

    label: str
    speedup: Interval
    sync_seconds: float
    async_seconds: float
    error: float | None


@dataclass(frozen=True, slots=True)
class PlanStudy:
    """The answers; fields that were not asked for are None or empty."""

    plan: Plan
    steps: int
    seeds: tuple[int, ...]
    result: TimeResult
    sync: TimeResult | None
    predictions: tuple[Prediction, ...]
    grid: tuple[Point, ...]
    bound: float
    best: Point | None
    more: Interval | None
    """Gain of one generator more, as a share, paired by seed."""


def study_plan(
    plan: Plan,
    *,
    steps: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    bound: float | None = None,
    search: bool = True,
    timeline: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
) -> PlanStudy:
    """Study a plan.

    Args:
        steps: trainer steps of a run; chosen for about 40,000 rollouts if not given.
        bound: largest mean staleness of the split search, in versions; the plan's own bound if not given.
        search: look at other splits and at one generator more.
        timeline: keep the timeline of the first seed.
    """
    steps = steps_for(plan, _ROLLOUTS, low=20) if steps is None else steps
    check_range("--steps", steps, low=2)
    overlapped = plan.protocol.mode in ("one-step", "async")
    versions = [("from chips and model", plan)] if plan.hardware else [("from measured costs", plan)]
    if overlapped and plan.hardware and plan.published and plan.published.sync_generation_seconds:
        versions.append(("calibrated on the sync row", calibrated(plan, steps=min(steps, 12))))
    pairs = [(label, case, synchronous_twin(case)) for label, case in versions] if overlapped else []
    wider = one_more_generator(plan) if search and not plan.colocated else None
    cases = [case for _, case, twin in pairs for case in (case, twin)] or [plan]
    cases += [wider] if wider else []
    limit = float(plan.protocol.max_inter + plan.protocol.max_intra) if bound is None else bound
    result = simulate(plan, steps=steps, seed=seeds[0], sample=_SAMPLE, timeline=timeline)
    sync = simulate(pairs[0][2], steps=_steps(pairs[0][2], plan, steps), seed=seeds[0]) if pairs else None
    known = [Point.of(plan, seeds[0], result)] + ([Point.of(pairs[0][2], seeds[0], sync)] if sync else [])
    jobs = [(case, _steps(case, plan, steps), seed) for case in cases for seed in seeds]
    with Runner(workers) as runner:
        points = _run(runner, jobs, known, progress)
        grid: tuple[Point, ...] = ()
        if wider:
            grid = search_splits(plan, steps=steps, bound=limit, known=known[0], runner=runner, progress=progress)
    rates = np.array([point.tokens_per_second for point in points]).reshape(-1, len(seeds))
    predictions = tuple(
        _predict(label, case, rates[2 * number], rates[2 * number + 1], points[2 * number * len(seeds) :], len(seeds))
        for number, (label, case, _) in enumerate(pairs)
    )
    more = mean_interval(rates[-1] / rates[0] - 1.0) if wider else None
    return PlanStudy(plan, steps, tuple(seeds), result, sync, predictions, grid, limit, best(grid, limit), more)


def _run(
    runner: Runner, jobs: Sequence[tuple[Plan, int, int]], known: Sequence[Point], progress: Progress | None
) -> list[Point]:
    """Run the jobs but those whose points are known, and return the points of all, in order."""
    have = {(id(point.plan), point.seed): point for point in known}
    todo = [job for job in jobs if (id(job[0]), job[2]) not in have]
    rest = iter(runner.run(todo, progress))
    return [have.get((id(case), seed)) or next(rest) for case, _, seed in jobs]


def _steps(case: Plan, plan: Plan, steps: int) -> int:
    """Return as many steps as make the rollouts of `steps` steps of `plan`, at least 4."""
    return max(4, steps * plan.batch.size // case.batch.size)


def _predict(
    label: str, plan: Plan, ours: np.ndarray, twin: np.ndarray, points: Sequence[Point], seeds: int
) -> Prediction:
    """Pair the plan's rates with its twin's; `points` starts with the plan's runs, then the twin's."""
    published = plan.published
    groups = (published.groups if published else None) or plan.batch.size
    speedup = mean_interval(ours / twin)
    error = None
    if published is not None and published.speedup is not None:
        low, high = published.speedup, published.speedup_high or published.speedup
        error = speedup.mean / min(max(speedup.mean, low), high) - 1.0
    seconds = [
        float(np.mean([point.seconds_per_step * groups / point.plan.batch.size for point in points[first:last]]))
        for first, last in ((0, seeds), (seeds, 2 * seeds))
    ]
    return Prediction(label, speedup, seconds[1], seconds[0], error)
