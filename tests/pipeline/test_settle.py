"""What becomes of rollouts and groups."""

from __future__ import annotations

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, DropReason, LossReason, OnUpdate, Order, Outcome, Policy, VersionSpan
from tests.pipeline.helpers import finish, ids, make, start, step, take

REQUEUE = Admission.asynchronous(1, 0, policy=Policy.REQUEUE)


def test_spans_outside_a_workers_versions_are_refused_and_change_nothing() -> None:
    pipeline = make(Admission.asynchronous(3, 2), prompts=9)
    first, second = start(pipeline, 2)
    before = pipeline.snapshot()
    with pytest.raises(ProtocolError, match="can only have 0…0"):
        finish(pipeline, first, 0, 1)
    assert pipeline.snapshot() == before
    finish(pipeline, second)
    step(pipeline)
    later = start(pipeline)[0]
    with pytest.raises(ProtocolError, match="can only have 1…1"):
        finish(pipeline, later, 0, 1)


def test_an_exact_rollout_keeps_to_its_plan() -> None:
    pipeline = make(Admission.exact(0, 0), prompts=9)
    finish(pipeline, start(pipeline)[0])
    step(pipeline)
    rollout = start(pipeline)[0]
    assert (rollout.version, rollout.last_version) == (1, 1)
    with pytest.raises(ProtocolError, match="must start under 1, got 0"):
        finish(pipeline, rollout, 0)


def test_a_group_of_equal_rewards_is_dropped_where_asked() -> None:
    for drop_them in (False, True):
        pipeline = make(prompts=1, group_size=2, drop_zero_variance=drop_them)
        outcomes = [pipeline.complete(r.ticket, [VersionSpan(0, 0, 1)], 0.5, 0.0) for r in start(pipeline, 2)]
        assert outcomes[1] is (Outcome.DROPPED if drop_them else Outcome.READY)
        assert pipeline.counts.dropped == ({DropReason.ZERO_VARIANCE: 1} if drop_them else {})


def test_requeue_generates_a_stale_prompt_again_as_a_new_group() -> None:
    pipeline = make(REQUEUE, prompts=9, order=Order.FRESHEST)
    for rollout in start(pipeline, 2):
        finish(pipeline, rollout)
    assert ids(step(pipeline)) == ["p0"]
    finish(pipeline, start(pipeline)[0])
    assert ids(step(pipeline)) == ["p2"]
    assert pipeline.counts.dropped == {DropReason.STALE: 1}
    finish(pipeline, start(pipeline)[0])
    assert [(g.prompt.id, g.prompt.attempt) for g in take(pipeline).groups] == [("p1", 2)]


def test_requeue_starts_a_stale_rollout_again_in_its_group() -> None:
    pipeline = make(REQUEUE, prompts=9)
    slow, first = start(pipeline, 2)
    finish(pipeline, first)
    step(pipeline)
    pipeline.join("v", 1)
    finish(pipeline, start(pipeline, worker="v")[0])
    step(pipeline)
    assert [r.ticket for r in pipeline.drain_aborts()] == [slow.ticket]
    assert finish(pipeline, slow) is Outcome.LATE
    again = start(pipeline)[0]
    assert (again.group, again.version, again.attempt) == (slow.group, 2, 2)


@pytest.mark.parametrize("enough", [True, False])
def test_a_deadline_settles_a_group_with_what_it_has(enough: bool) -> None:
    pipeline = make(prompts=1, group_size=3, min_rollouts=2, deadline=5.0)
    rollouts = start(pipeline, 3)
    for rollout in rollouts[: 2 if enough else 1]:
        finish(pipeline, rollout)
    pipeline.expire(4.9)
    assert pipeline.ready_groups == 0
    pipeline.expire(5.0)
    assert [r.ticket for r in pipeline.drain_aborts()] == [r.ticket for r in rollouts[2 if enough else 1 :]]
    assert pipeline.ready_groups == enough
    assert pipeline.counts.dropped == ({} if enough else {DropReason.STRAGGLER: 1})


def test_hold_keeps_the_weights_and_abort_gives_the_rollout_up() -> None:
    for on_update in OnUpdate:
        admission = Admission.asynchronous(3, 0, policy=Policy.REQUEUE, on_update=on_update)
        pipeline = make(admission, prompts=9)
        slow, quick = start(pipeline, 2)
        finish(pipeline, quick)
        take(pipeline)
        pipeline.publish(1, 0.0)
        plan = pipeline.plan_update("w")
        if on_update is OnUpdate.HOLD:
            assert (plan.version, plan.held_by) == (None, (slow.ticket,))
            with pytest.raises(ProtocolError, match="follow plan_update"):
                pipeline.update("w", 1, 0.0)
        else:
            assert (plan.version, plan.aborts) == (1, (slow.ticket,))
            pipeline.update("w", 1, 0.0)
            assert pipeline.counts.lost == {LossReason.INTRA: 1}
            assert (again := start(pipeline)[0]).group == slow.group
            assert again.version == 1


def test_a_failed_rewards_tokens_no_longer_bound_their_group() -> None:
    """A generated rollout lowers its group's floor; when its reward fails, a fresh start may take its place."""
    pipeline = make(Admission.asynchronous(1, 0), prompts=9)
    stale, quick = start(pipeline, 2)
    pipeline.generated(stale.ticket, [VersionSpan(0, 0, 1)], 0.0)
    finish(pipeline, quick)
    step(pipeline)
    assert pipeline.fail(stale.ticket, 0.0) is Outcome.RESTARTED
    pipeline.audit()
    again = start(pipeline)[0]
    finish(pipeline, again)
    assert take(pipeline).staleness() == {0: 1}


def test_recover_starts_everything_again_and_costs_no_attempt() -> None:
    pipeline = make(prompts=2, group_size=2, max_attempts=1, deadline=9.0)
    done, _lost = start(pipeline, 2)
    finish(pipeline, done)
    pipeline.recover(100.0)
    assert pipeline.workers == {}
    assert pipeline.next_deadline == 109.0
    pipeline.join("v", 0)
    assert [(r.index, r.attempt) for r in start(pipeline, 9, worker="v")] == [(1, 1)]
