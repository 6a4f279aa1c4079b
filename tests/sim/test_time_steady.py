"""A fleet decides what engines decide; it is used where it may be, and left while a generator is held back."""

from __future__ import annotations

from typing import Any

import pytest

from entr_lab.sim import time_generators
from entr_lab.sim.time_fleet import Fleet
from entr_lab.sim.time_level import _Run, simulate
from tests.sim.test_time_level import check_same, plan

HELD_BACK = {
    "protocol": {"max_inter": 2, "max_intra": 0},
    "lengths": {"cv": 2.0},
    "costs": {"trainer_fixed": 0.1},
}


def run(**changes: Any) -> _Run:
    made = _Run(plan(**changes), steps=30, seed=5, sample=0, timeline=False)
    made.run()
    return made


@pytest.mark.parametrize(
    ("changes", "to_the_end"),
    [
        ({}, True),
        ({"protocol": {"mode": "split-sync"}}, True),
        ({"protocol": {"max_inter": 4, "max_intra": 8}, "lengths": {"cv": 2.0}, "costs": {"trainer_fixed": 3.0}}, True),
        ({"protocol": {"max_inter": 6, "buffer_groups": 5}, "costs": {"slots": 64}}, True),
        ({"lengths": {"kind": "fixed", "mean": 40, "cap": 40}}, True),
        (
            {"protocol": {"max_inter": 2, "max_intra": 0}, "lengths": {"cv": 2.0}, "costs": {"trainer_fixed": 0.1}},
            False,
        ),
        ({"protocol": {"max_inter": 2, "max_intra": 1}, "lengths": {"cv": 1.0}, "costs": {"trainer_fixed": 1.0}}, True),
        ({"protocol": {"max_inter": 4, "max_intra": 1}, "lengths": {"cv": 0.5}, "costs": {"trainer_fixed": 0.5}}, True),
    ],
)
def test_a_fleet_decides_what_one_event_per_completion_decides(
    changes: dict[str, Any], to_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (run(**changes).fleet is not None) == to_the_end
    fleet = simulate(plan(**changes), steps=80, seed=6, sample=4, timeline=True)
    monkeypatch.setattr(time_generators, "_steady", lambda _: False)
    engines = simulate(plan(**changes), steps=80, seed=6, sample=4, timeline=True)
    check_same(fleet, engines)


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {"sync_every": 2}},
        {"costs": {"slots": 7}},  # 3 generators, (2 + 1) · 4 · 2 rollouts
        {"tools": {"reward_seconds": 1.0}},
        {"failures": {"mean_seconds": 9.0, "repair_seconds": 1.0}},
        {"protocol": {"policy": "drop"}},
    ],
)
def test_plans_whose_generators_are_not_alike_or_not_roomy_have_no_fleet(changes: dict[str, Any]) -> None:
    assert _Run(plan(**changes), steps=4, seed=0, sample=0, timeline=False).fleet is None
    assert _Run(plan(costs={"slots": 8}), steps=4, seed=0, sample=0, timeline=False).fleet is not None


def test_engines_become_a_fleet_again_when_all_have_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"protocol": {"max_inter": 4, "max_intra": 1}, "lengths": {"cv": 0.5}, "costs": {"trainer_fixed": 0.5}}
    log: list[str] = []
    for name in ("take_over", "hand_over"):
        method = getattr(Fleet, name)

        def noted(fleet: Fleet, engines: Any, name: str = name, method: Any = method) -> Any:
            log.append(name)
            return method(fleet, engines)

        monkeypatch.setattr(Fleet, name, noted)
    made = _Run(plan(**changes), steps=80, seed=6, sample=0, timeline=False)
    made.run()
    assert log
    assert log == ["hand_over", "take_over"] * (len(log) // 2)
    assert made.fleet is not None
    assert made.balance.on_board is made.on_board
    assert sum(made.on_board) == sum(len(made.pipeline.running(name)) for name in made.names)
    assert not made.rollouts
    assert all(not engine.running for engine in made.engines)
    made.pipeline.audit()


def test_a_fleet_whose_generator_is_held_back_becomes_engines_with_all_their_work() -> None:
    broken = run(**HELD_BACK)
    assert broken.fleet is None
    assert broken.balance.on_board is None
    assert sorted(broken.rollouts) == sorted(
        ticket for name in broken.names for ticket in broken.pipeline.running(name)
    )
    assert {job.ticket for engine in broken.engines for _, _, job in engine.running} == set(broken.rollouts)
    broken.pipeline.audit()
