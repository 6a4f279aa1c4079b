"""The study of a plan: pairing, errors against published numbers, and what is left out when it makes no sense."""

from __future__ import annotations

import pytest

from entr_lab.errors import RangeError
from entr_lab.report.plan_study import study_plan
from entr_lab.sim.plan_config import parse_plan, with_protocol
from entr_lab.sim.plan_search import evaluate, one_more_generator, synchronous_twin
from tests.sim.test_plan_search import SMALL


def published(**numbers: float) -> dict[str, object]:
    return SMALL | {"published": {"source": "s", "given": "g", "assumed": "a"} | numbers}


def test_ratios_are_paired_by_seed() -> None:
    plan = parse_plan(published(speedup=1.0, groups=12))
    study = study_plan(plan, steps=8, seeds=(3, 5))
    ours = [evaluate((plan, 8, seed)) for seed in (3, 5)]
    twins = [evaluate((synchronous_twin(plan), 4, seed)) for seed in (3, 5)]
    ratios = [a.tokens_per_second / b.tokens_per_second for a, b in zip(ours, twins, strict=True)]
    (row,) = study.predictions
    assert row.speedup.mean == pytest.approx(sum(ratios) / 2)
    assert row.error == pytest.approx(row.speedup.mean - 1.0)
    # the published step is 12 groups, ours 4, the twin's 8
    assert row.async_seconds == pytest.approx(3 * sum(point.seconds_per_step for point in ours) / 2)
    assert row.sync_seconds == pytest.approx(1.5 * sum(point.seconds_per_step for point in twins) / 2)
    wider = [evaluate((one_more_generator(plan), 8, seed)) for seed in (3, 5)]
    gains = [b.tokens_per_second / a.tokens_per_second - 1 for a, b in zip(ours, wider, strict=True)]
    assert study.more is not None
    assert study.more.mean == pytest.approx(sum(gains) / 2)


def test_inside_a_published_span_there_is_no_error() -> None:
    plan = parse_plan(published(speedup=0.1, speedup_high=50.0))
    (row,) = study_plan(plan, steps=8, seeds=(0,), search=False).predictions
    assert row.error == pytest.approx(0.0, abs=1e-12)


def test_published_phases_give_a_second_calibrated_prediction() -> None:
    phases = SMALL["published"] | {"groups": 8}
    study = study_plan(parse_plan(SMALL | {"published": phases}), steps=8, seeds=(0,), search=False)
    assert [row.label for row in study.predictions] == ["from chips and model", "calibrated on the sync row"]
    assert study.predictions[1].sync_seconds == pytest.approx(9.0 + 4.0 + 3.3, rel=0.1)  # and the transfer
    assert study.predictions[0].error is None
    assert (study.grid, study.more) == ((), None)


def test_a_synchronous_plan_has_no_twin() -> None:
    plan = with_protocol(parse_plan(SMALL), mode="colocated-sync")
    study = study_plan(plan, steps=4, seeds=(0,))
    assert (study.predictions, study.sync, study.grid, study.more) == ((), None, (), None)
    assert study.result.mode == "colocated-sync"


def test_the_bound_of_the_search_is_the_plans_unless_given() -> None:
    study = study_plan(parse_plan(SMALL), steps=8, seeds=(0,))
    assert study.bound == 4.0
    assert study.best is not None
    assert study.best.tokens_per_second == max(point.tokens_per_second for point in study.grid)
    none = study_plan(parse_plan(SMALL), steps=8, seeds=(0,), bound=-1.0)
    assert none.best is None


def test_one_step_is_too_few() -> None:
    with pytest.raises(RangeError, match="--steps"):
        study_plan(parse_plan(SMALL), steps=1)
