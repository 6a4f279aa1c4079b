"""Derived facts of a trajectory."""

from __future__ import annotations

from entr_lab.pipeline.records import Trajectory
from tests.pipeline.helpers import spans


def test_first_version_is_the_first_tokens_once_known() -> None:
    rollout = Trajectory(0, 0, 0, "w", version=3, last_version=-1, attempt=1, started=0.0)
    assert (rollout.first_version, rollout.tokens) == (3, 0)
    rollout.spans = spans(4, 6, each=5)  # it waited in the engine's queue through one update
    assert (rollout.first_version, rollout.tokens) == (4, 10)
