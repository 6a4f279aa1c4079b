"""Generators without a trainer: feeding is even, stops at the bound, and idleness has a reason."""

from __future__ import annotations

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


def test_slots_are_filled_and_never_exceeded() -> None:
    generators = started(plan(protocol={"max_inter": 50, "max_intra": 2}, costs={"slots": 7}))
    assert [engine.load for engine in generators.engines] == [7, 7, 7]
    assert all(not engine.waiting for engine in generators.engines)


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
    slow.epoch += 1
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
