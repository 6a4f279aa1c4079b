"""The best split of a plan's GPUs between generating and training.

More generators speed a plan up until the trainer is the bottleneck, and slow it down from there; staleness rises with
them. So the search looks at a few splits and halves its stride around the best; every split that it looks at runs the
same steps, since the first ones of a run are slower than the rest and not alike in all splits.
"""

from __future__ import annotations

from collections.abc import Sequence

from entr_lab.sim.plan_config import with_split
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.plan_search import Point, Progress, Runner

__all__ = ["best", "search_splits", "splits"]

_STRIDE = 4


def search_splits(
    plan: Plan, *, steps: int, bound: float, known: Point, runner: Runner, progress: Progress | None = None
) -> tuple[Point, ...]:
    """Return a point of `steps` steps for every split that was looked at, by generator GPUs.

    Args:
        bound: largest mean staleness; among splits outside it, the least stale leads on.
        known: the point of the plan's own split; its seed is used for all.
    """
    pools = splits(plan)
    points = {pools.index(plan.generator_gpus): known}
    stride = _STRIDE
    wanted = list(range(min(stride // 2, len(pools) - 1), len(pools), stride))
    while stride:
        jobs = [index for index in wanted if 0 <= index < len(pools) and index not in points]
        cases = [(with_split(plan, pools[index]), steps, known.seed) for index in jobs]
        points.update(zip(jobs, runner.run(cases, progress), strict=True))
        lead = max(points, key=lambda index: _merit(points[index], bound))
        stride //= 2
        wanted = [lead - stride, lead + stride]
    return tuple(points[index] for index in sorted(points))


def _merit(point: Point, bound: float) -> tuple[bool, float]:
    inside = point.staleness_mean <= bound
    return inside, point.tokens_per_second if inside else -point.staleness_mean


def splits(plan: Plan, most: int = 12) -> list[int]:
    """Return up to `most` numbers of generator GPUs that split the plan's GPUs, evenly spread, its own included."""
    tp = plan.tensor_parallel
    all_of_them = list(range(tp, plan.gpus, tp))
    if len(all_of_them) > most:
        stride = (len(all_of_them) - 1) / (most - 1)
        all_of_them = [all_of_them[round(stride * position)] for position in range(most)]
    return sorted({*all_of_them, *([plan.generator_gpus] if 0 < plan.generator_gpus < plan.gpus else [])})


def best(points: Sequence[Point], bound: float) -> Point | None:
    """Return the fastest point whose mean staleness is at most `bound` versions, or None."""
    inside = [point for point in points if point.staleness_mean <= bound]
    return max(inside, key=lambda point: point.tokens_per_second, default=None)
