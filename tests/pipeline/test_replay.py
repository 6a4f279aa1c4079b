"""Replay from the beginning, from a snapshot, and where it must refuse."""

from __future__ import annotations

import json

import pytest

from entr_lab.errors import DataError, ProtocolError
from entr_lab.pipeline import Admission, Event, Pipeline, replay
from tests.pipeline.helpers import finish, ids, make, start, step


def a_run(steps: int = 6) -> tuple[Pipeline, list[Event], list[dict[str, object]]]:
    log: list[Event] = []
    pipeline = make(Admission.asynchronous(2, 1), prompts=40, batch_groups=2, log=log.append)
    snapshots = []
    for i in range(steps):
        for rollout in start(pipeline, 2):
            finish(pipeline, rollout, now=float(i))
        step(pipeline)
        snapshots.append(json.loads(json.dumps(pipeline.snapshot())))
    return pipeline, log, snapshots


def test_a_snapshot_and_the_rest_of_the_log_give_the_state_at_the_crash() -> None:
    pipeline, log, snapshots = a_run()
    for done, snapshot in enumerate(snapshots, start=1):
        again, batches = replay(log, snapshot=snapshot)
        assert [batch.step for batch in batches] == list(range(done, 6))
        assert again.snapshot() == pipeline.snapshot()


def test_a_replayed_pipeline_goes_on_and_so_does_its_log() -> None:
    pipeline, log, _ = a_run()
    again, _ = replay(log, log=log.append)
    for p in (pipeline, again):
        if p is pipeline:
            p.attach_log(None)
        for rollout in start(p, 2):
            finish(p, rollout)
        step(p)
    third, batches = replay(log)
    assert third.snapshot() == again.snapshot() == pipeline.snapshot()
    assert ids(batches[-1]) == ["p12", "p13"]


def test_a_log_may_begin_with_a_snapshot() -> None:
    pipeline, _, snapshots = a_run()
    log: list[Event] = []
    resumed = Pipeline.restore(snapshots[-1], log=log.append)
    resumed.recover(0.0)
    resumed.join("v", resumed.version)
    assert [event.kind for event in log] == ["resume", "recover", "join"]
    again, _ = replay(log)
    assert again.snapshot() == resumed.snapshot()
    assert pipeline.counts.trained == again.counts.trained == 12


def test_closed_groups_are_reported_again() -> None:
    _, log, _ = a_run()
    over: list[tuple[int, object]] = []
    replay(log, closed=lambda group, reason: over.append((group.id, reason)))
    assert over == [(i, None) for i in range(12)]


def test_a_different_answer_is_refused() -> None:
    _, log, _ = a_run()
    at = next(i for i, event in enumerate(log) if event.kind == "take")
    log[at] = Event(log[at].seq, "take", {"answer": [0, [1, 0]]})
    with pytest.raises(ProtocolError, match=rf"replay of event {at} \(take\) gives \[0, \[0, 1\]\]"):
        replay(log)


@pytest.mark.parametrize(
    ("keep", "message"),
    [(slice(0, 0), "has no events"), (slice(1, None), "begins with 'prompts'")],
)
def test_an_incomplete_log_is_refused(keep: slice, message: str) -> None:
    _, log, _ = a_run()
    with pytest.raises(DataError, match=message):
        replay(log[keep])


def test_a_gap_between_snapshot_and_log_is_refused() -> None:
    _, log, snapshots = a_run()
    with pytest.raises(DataError, match="goes on with event"):
        replay(log[-3:], snapshot=snapshots[0])
