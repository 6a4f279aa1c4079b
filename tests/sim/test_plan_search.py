"""Questions to a plan: twins, splits, calibration, and that processes do not change answers."""

from __future__ import annotations

from typing import Any

import pytest

from entr_lab.errors import ConfigError, RangeError
from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.plan_presets import preset
from entr_lab.sim.plan_search import (
    calibrated,
    evaluate_all,
    one_more_generator,
    steps_for,
    synchronous_twin,
    with_bound,
)
from entr_lab.sim.time_level import simulate

SMALL: dict[str, Any] = {
    "gpus": 8,
    "generator_gpus": 4,
    "hardware": {"gpu": "H100", "model": "qwen3-8b"},
    "lengths": {"mean": 200, "cap": 800},
    "batch": {"groups": 4, "rollouts": 4},
    "protocol": {"max_inter": 2, "max_intra": 2},
    "baseline": {"forward_passes": 1, "groups": 8},
    "published": {
        "source": "nobody",
        "given": "-",
        "assumed": "-",
        "sync_generation_seconds": 9.0,
        "sync_training_seconds": 4.0,
    },
}


def test_the_twin_shares_chips_and_lengths_and_differs_as_the_baseline_says() -> None:
    plan = parse_plan(SMALL)
    twin = synchronous_twin(plan)
    assert (twin.gpus, twin.lengths, twin.protocol.mode) == (plan.gpus, plan.lengths, "colocated-sync")
    assert twin.hardware is not None
    assert (twin.hardware.forward_passes, twin.batch.size) == (1, 8)


def test_calibration_meets_the_synchronous_phases_and_leaves_the_rest_alone() -> None:
    plan = calibrated(parse_plan(SMALL), steps=10)
    twin = simulate(synchronous_twin(plan), steps=10)
    assert twin.accounts["trainer"]["training"] / 10 == pytest.approx(4.0, rel=1e-6)
    assert twin.accounts["trainer"]["generation"] / 10 == pytest.approx(9.0, rel=1e-6)
    assert plan.protocol == parse_plan(SMALL).protocol
    with pytest.raises(ConfigError, match="no published phases"):
        calibrated(preset("laptop"), steps=4)


def test_a_bound_may_be_put_in_place_of_the_plans() -> None:
    plan = with_bound(parse_plan(SMALL), 5, 1)
    assert (plan.protocol.mode, plan.protocol.max_inter, plan.protocol.max_intra) == ("async", 5, 1)


def test_processes_do_not_change_answers() -> None:
    jobs = [(parse_plan(SMALL), 6, seed) for seed in range(3)]
    told: list[tuple[int, int]] = []
    assert evaluate_all(jobs, workers=2, progress=lambda done, total: told.append((done, total))) == evaluate_all(jobs)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert [point.steps for point in evaluate_all(jobs[:1])] == [6]
    with pytest.raises(RangeError, match="workers"):
        evaluate_all(jobs, workers=0)


def test_one_generator_more_is_more_gpus() -> None:
    plan = one_more_generator(parse_plan(SMALL | {"tensor_parallel": 2}))
    assert (plan.gpus, plan.generator_gpus, plan.trainer_gpus) == (10, 6, 4)


def test_steps_follow_the_rollouts_within_limits() -> None:
    plan = parse_plan(SMALL)
    assert steps_for(plan, 16 * 100) == 100
    assert steps_for(plan, 1) == 24
    assert steps_for(plan, 10**9) == 400
