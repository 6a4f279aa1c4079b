"""Turns that end together: what is reported by one call, and where it has to stop."""

from __future__ import annotations

import pytest

from entr_lab.pipeline import Pipeline
from entr_lab.sim.time_together import Together
from tests.sim.test_time_level import plan
from tests.sim.test_time_orders import started


def test_turns_are_reported_by_one_call_up_to_the_one_that_completes_a_group(monkeypatch) -> None:
    generators = started(plan(batch={"rollouts": 4}, protocol={"max_inter": 1}))
    calls: list[list[int]] = []
    one = Pipeline.complete_each

    def counted(self: Pipeline, reports):
        calls.append([ticket for ticket, _, _, _ in reports])
        outcomes = one(self, reports)
        assert all(outcome == "open" for outcome in outcomes[:-1])
        return outcomes

    monkeypatch.setattr(Pipeline, "complete_each", counted)
    generators.clock.run()
    assert sum(map(len, calls)) == 2 * 4 * 4
    assert len(calls) <= 2 * 4 + 3  # a group each, and where an engine's alarm had been put off
    assert generators.missing == {}


def test_a_busy_trainer_is_not_asked(monkeypatch) -> None:
    monkeypatch.setattr(Together, "trainer_busy", True)
    generators = started(plan())
    monkeypatch.setattr(generators, "_take", lambda: pytest.fail("asked"))
    generators.clock.run()
    assert generators.queue.value == generators.pipeline.ready_groups == 3 * 4
