"""What workers report, in the order in which it can come."""

from __future__ import annotations

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, Outcome
from tests.pipeline.helpers import finish, make, spans, start


def test_the_last_rollout_makes_the_group_ready() -> None:
    pipeline = make(prompts=1, group_size=3)
    assert [finish(pipeline, r) for r in start(pipeline, 3)] == [Outcome.OPEN, Outcome.OPEN, Outcome.READY]


def test_progress_is_replaced_by_what_is_reported_in_the_end() -> None:
    pipeline = make(Admission.asynchronous(1, 1), prompts=2)
    rollout = start(pipeline)[0]
    pipeline.progress(rollout.ticket, spans(0, each=3))
    assert rollout.tokens == 3
    with pytest.raises(ProtocolError, match="can only have 0…0"):
        pipeline.progress(rollout.ticket, spans(0, 1))
    finish(pipeline, rollout, each=9)
    assert rollout.tokens == 9


def test_aborts_are_delivered_once() -> None:
    pipeline = make(prompts=1, group_size=2, deadline=1.0)
    rollouts = start(pipeline, 2)
    pipeline.expire(1.0)
    assert pipeline.drain_aborts() == rollouts
    assert pipeline.drain_aborts() == []
