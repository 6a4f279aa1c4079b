"""What workers report, in the order in which it can come."""

from __future__ import annotations

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, Event, Outcome
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


@pytest.mark.parametrize("logged", [False, True])
def test_reporting_each_is_reporting_one_by_one(logged: bool) -> None:
    """Several spans, a late report, a group that becomes complete, one that breaks max_intra."""
    states, answers, logs = [], [], ([], [])  # type: ignore[var-annotated]
    for together, log in zip((False, True), logs, strict=True):
        events: list[Event] = log
        pipeline = make(Admission.asynchronous(5, 1), prompts=4, group_size=2, log=events.append if logged else None)
        first = start(pipeline, 6)
        finish(pipeline, first[0])
        finish(pipeline, first[1])
        for version in (1, 2):
            pipeline.take()
            pipeline.publish(version, 0.0) if pipeline.training else None
        pipeline.update("w", 1, 0.0)
        reports = [
            (first[2].ticket, spans(0, 1), 1.0, 3.0),
            (first[0].ticket, spans(0), 1.0, 4.0),
            (first[4].ticket, spans(1), 0.0, 5.0),
            (first[3].ticket, spans(0, each=4), 0.0, 6.0),
        ]
        each = pipeline.complete_each(reports) if together else [pipeline.complete(*report) for report in reports]
        answers.append(each)
        states.append(pipeline.snapshot())
        pipeline.audit()
    assert answers[0] == answers[1] == [Outcome.OPEN, Outcome.LATE, Outcome.OPEN, Outcome.READY]
    assert states[0] == states[1]
    assert logs[0] == logs[1]


def test_a_wrong_report_stops_the_ones_after_it_only() -> None:
    pipeline = make(prompts=1, group_size=3)
    one, two, three = start(pipeline, 3)
    with pytest.raises(ProtocolError, match=f"ticket {two.ticket} reports versions 4"):
        pipeline.complete_each([(r.ticket, spans(v), 0.0, 0.0) for r, v in ((one, 0), (two, 4), (three, 0))])
    assert pipeline.counts.finished == 1
    with pytest.raises(ProtocolError, match="has reward nan"):
        pipeline.complete_each([(two.ticket, spans(0), float("nan"), 0.0)])
