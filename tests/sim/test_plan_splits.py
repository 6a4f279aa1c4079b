"""Splits of the GPUs: what is looked at, and which is best."""

from __future__ import annotations

import pytest

from entr_lab.sim.plan_config import parse_plan, with_split
from entr_lab.sim.plan_search import Runner, evaluate, evaluate_all, with_bound
from entr_lab.sim.plan_splits import best, search_splits, splits
from tests.sim.test_plan_search import SMALL


def test_splits_are_whole_generators_spread_over_all() -> None:
    plan = parse_plan(SMALL | {"gpus": 64, "generator_gpus": 36, "tensor_parallel": 2})
    pools = splits(plan, most=7)
    assert pools[0] == 2
    assert pools[-1] == 62
    assert 36 in pools
    assert len(pools) <= 8
    assert all(pool % 2 == 0 for pool in pools)


def test_the_best_point_is_the_fastest_inside_the_bound() -> None:
    plan = parse_plan(SMALL)
    points = evaluate_all([(with_bound(plan, inter, 2), 24, 0) for inter in (0, 1, 4)])
    rates = [point.tokens_per_second for point in points]
    assert rates[0] < rates[1] <= rates[2]
    assert best(points, 100.0) is points[rates.index(max(rates))]
    limit = points[1].staleness_mean
    inside = best(points, limit)
    assert inside is not None
    assert inside.staleness_mean <= limit
    assert best(points, -1.0) is None


@pytest.mark.parametrize("own", [1, 7, 15])
@pytest.mark.parametrize("bound", [4.0, 0.9, 0.0])
def test_the_search_finds_what_looking_at_all_splits_finds(own: int, bound: float) -> None:
    plan = parse_plan(SMALL | {"gpus": 16, "generator_gpus": own})
    everything = evaluate_all([(with_split(plan, pool), 120, 3) for pool in splits(plan)])
    with Runner(1) as runner:
        points = search_splits(plan, steps=120, bound=bound, known=evaluate((plan, 120, 3)), runner=runner)
    pools = [point.plan.generator_gpus for point in points]
    assert own in pools
    assert pools == sorted(set(pools))
    assert len(points) < len(everything)
    assert all(point in everything for point in points)
    found, target = best(points, bound), best(everything, bound)
    assert (found is None) == (target is None)
    if found is not None and target is not None:
        assert found.tokens_per_second > 0.98 * target.tokens_per_second


def test_a_plan_of_two_gpus_has_one_split() -> None:
    plan = parse_plan(SMALL | {"gpus": 2, "generator_gpus": 1})
    known = evaluate((plan, 6, 0))
    with Runner(1) as runner:
        assert search_splits(plan, steps=6, bound=9.0, known=known, runner=runner) == (known,)
