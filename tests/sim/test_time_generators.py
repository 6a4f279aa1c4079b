"""Generators without a trainer: all ends, idleness has a reason, and reporting together changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from entr_lab.sim import time_generators
from entr_lab.sim.time_level import simulate
from tests.sim.test_time_level import check_same, plan
from tests.sim.test_time_orders import started


def test_without_a_trainer_all_finish_and_then_wait_for_the_bound() -> None:
    generators = started(plan())
    generators.clock.run()
    assert generators.rollouts == {}
    assert generators.pipeline.ready_groups == 3 * 4
    assert {account.state for account in generators.accounts} == {"stragglers"}
    assert generators.in_flight.value == 0


def test_a_fast_generator_gets_more_work_because_it_is_less_loaded() -> None:
    case = plan(protocol={"max_inter": 200, "max_intra": 2}, costs={"slots": 4})
    generators = started(case)
    slow = generators.engines[0]
    slow.time = 1e9  # stalled for good
    slow.due = slow.alarm = math.inf
    finished = 0
    while finished < 200:
        before = generators.pipeline.counts.finished
        generators.clock.at(generators.clock.now, lambda _: generators.clock.stop())
        generators.clock.run()
        generators.clock.after(5.0, lambda _: generators.clock.stop())
        generators.clock.run()
        finished += generators.pipeline.counts.finished - before
    assert slow.load == 4
    assert all(engine.load == 4 for engine in generators.engines[1:])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"protocol": {"max_inter": 4, "max_intra": 1}, "costs": {"trainer_fixed": 3.0, "slots": 64}},
        {"protocol": {"max_inter": 1, "max_intra": 0}, "costs": {"trainer_fixed": 0.1}, "lengths": {"cv": 2.0}},
        {"protocol": {"mode": "one-step"}, "batch": {"groups": 3, "rollouts": 5}},
        {"protocol": {"mode": "split-sync"}},
        {"protocol": {"sync_every": 2}, "costs": {"trainer_fixed": 2.0}},
        {"protocol": {"buffer_groups": 5, "max_inter": 6}},
        {"lengths": {"kind": "fixed", "mean": 40, "cap": 40}},
    ],
)
def test_turns_reported_together_give_what_turns_reported_one_by_one_give(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = simulate(plan(**changes), steps=60, seed=5, sample=4, timeline=True)
    monkeypatch.setattr(time_generators, "_steady", lambda _: False)
    one_by_one = simulate(plan(**changes), steps=60, seed=5, sample=4, timeline=True)
    check_same(together, one_by_one)


def test_plans_that_lose_work_or_wait_report_one_by_one() -> None:
    assert time_generators._steady(plan())
    for changes in (
        {"tools": {"turns": 2.0, "max_turns": 3}},
        {"tools": {"reward_seconds": 1.0}},
        {"failures": {"mean_seconds": 9.0, "repair_seconds": 1.0}},
        {"protocol": {"deadline": 5.0}},
        {"protocol": {"policy": "drop"}},
        {"protocol": {"zero_variance": 0.1}},
        {"protocol": {"max_in_flight": 3}},
    ):
        assert not time_generators._steady(plan(**changes)), changes
