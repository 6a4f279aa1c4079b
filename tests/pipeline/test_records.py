"""Derived facts of a trajectory."""

from __future__ import annotations

from entr_lab.pipeline.records import Trajectory, Worker
from tests.pipeline.helpers import spans


def test_first_version_is_the_first_tokens_once_known() -> None:
    rollout = Trajectory(0, 0, 0, "w", version=3, last_version=-1, attempt=1, started=0.0)
    assert (rollout.first_version, rollout.tokens) == (3, 0)
    rollout.spans = spans(4, 6, each=5)  # it waited in the engine's queue through one update
    assert (rollout.first_version, rollout.tokens) == (4, 10)


def test_what_started_too_early_is_found_behind_what_waited_for_newer_weights() -> None:
    worker = Worker("w", 5)
    for ticket, version in enumerate((1, 1, 3, 4)):
        worker.held[ticket] = Trajectory(ticket, 0, ticket, "w", version, -1, 1, 0.0)
    worker.held[0].spans = spans(4)  # it started under 1, but its first token came later
    assert [t.ticket for t in worker.started_before(4)] == [1, 2]
    assert worker.started_before(1) == []
