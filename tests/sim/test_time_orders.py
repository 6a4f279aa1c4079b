"""Feeding is even, stops at the bound, and asks no more than it has to."""

from __future__ import annotations

import pytest

from entr_lab.pipeline import Pipeline, Reason
from entr_lab.sim.plan_config import Plan
from entr_lab.sim.time_generators import Generators
from entr_lab.sim.time_level import pipeline_config
from tests.sim.test_time_level import plan


def started(case: Plan) -> Generators:
    generators = Generators(case, pipeline_config(case), seed=0, timeline=False)
    generators._go_on()
    return generators


def test_rollouts_are_spread_evenly_until_the_bound() -> None:
    # wait policy: (max_inter + 1) batches of 4 groups of 2 are alive at most
    generators = started(plan(protocol={"max_inter": 4}, costs={"slots": 64}))
    assert sum(engine.load for engine in generators.engines) == 5 * 4 * 2
    loads = [engine.load for engine in generators.engines]
    assert max(loads) - min(loads) <= 1
    assert (generators.blocked, generators.open) == (Reason.STALENESS, False)


def test_slots_are_filled_and_never_exceeded() -> None:
    generators = started(plan(protocol={"max_inter": 50, "max_intra": 2}, costs={"slots": 7}))
    assert [engine.load for engine in generators.engines] == [7, 7, 7]
    assert all(not engine.waiting for engine in generators.engines)
    assert (generators.blocked, generators.open) == (Reason.IN_FLIGHT, True)


def test_a_bound_that_is_reached_costs_no_question_to_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = started(plan())
    monkeypatch.setattr(Pipeline, "dispatch", lambda *_: pytest.fail("asked"))
    generators._go_on()
    assert not generators.open


def test_updates_bring_new_weights_once_and_mark_the_engine() -> None:
    generators = started(plan())
    generators.pipeline._state.version = 1  # as if published
    generators._try_update(2)
    generators._try_update(2)
    assert generators.engines[2].versions == [0, 1]
    assert generators.pipeline.workers["generator-0002"] == 1
    assert generators.accounts[2].state == "weights"
