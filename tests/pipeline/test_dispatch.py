"""Which rollouts start where, and the reason when none does."""

from __future__ import annotations

import pytest

from entr_lab.pipeline import Admission, Policy, Reason, Wait
from tests.pipeline.helpers import finish, load, make, start, step, take


def reason(answer: object) -> Reason:
    assert isinstance(answer, Wait), answer
    return answer.reason


def test_groups_are_filled_in_the_order_of_the_data() -> None:
    pipeline = make(Admission.asynchronous(3, 0), prompts=3, group_size=3)
    pipeline.join("v", 0)
    first, second = start(pipeline, 2), start(pipeline, 2, worker="v")
    assert [(r.group, r.index) for r in first + second] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [r.ticket for r in first + second] == [0, 1, 2, 3]
    assert pipeline.running("w") == (0, 1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"max_in_flight": 2}, Reason.IN_FLIGHT),
        ({"buffer_groups": 2}, Reason.BUFFER_FULL),
        ({"prompts": 2}, Reason.NO_PROMPTS),
    ],
)
def test_limits_stop_new_groups_and_say_which(settings: dict[str, int], expected: Reason) -> None:
    pipeline = make(Admission.asynchronous(9, 0), **{"prompts": 50, **settings})
    assert len(start(pipeline, 50)) == 2
    assert reason(pipeline.dispatch("w", 1, 0.0)) is expected
    assert reason(pipeline.dispatch("w", 0, 0.0)) is Reason.NO_SLOTS


@pytest.mark.parametrize(("policy", "room"), [(Policy.WAIT, 3), (Policy.DROP, 5)], ids=["pessimistic", "optimistic"])
def test_the_capacity_rule_is_the_bound_in_batches(policy: Policy, room: int) -> None:
    """(max_inter + 1) batches where nothing may be lost; max_intra more where a group may grow fresher in flight."""
    pipeline = make(Admission.asynchronous(2, 2, policy=policy), prompts=99, batch_groups=4)
    assert len(start(pipeline, 99)) == 4 * room
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.STALENESS


def test_one_step_is_one_batch_ahead() -> None:
    pipeline = make(Admission.one_step(), prompts=99, batch_groups=2)
    for rollout in start(pipeline, 2):
        finish(pipeline, rollout)
    take(pipeline)
    assert len(start(pipeline, 99)) == 2
    assert reason(pipeline.dispatch("w", 9, 0.0)) is Reason.STALENESS


def test_a_worker_behind_its_bound_must_load_first() -> None:
    pipeline = make(Admission.asynchronous(3, 1), prompts=9)
    for rollout in start(pipeline, 3):
        finish(pipeline, rollout)
    step(pipeline, worker=None)
    assert len(start(pipeline)) == 1
    step(pipeline, worker=None)
    assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.WORKER_VERSION


def test_under_wait_a_group_goes_on_only_with_weights_as_new_as_its_own() -> None:
    pipeline = make(Admission.asynchronous(3, 2), prompts=9, group_size=2, worker="old")
    for rollout in start(pipeline, 2, worker="old"):
        finish(pipeline, rollout)
    step(pipeline, worker=None)
    pipeline.join("new", 1)
    start(pipeline, 1, worker="new")
    assert reason(pipeline.dispatch("old", 1, 0.0)) is Reason.WORKER_VERSION
    load(pipeline, "old")
    assert start(pipeline, 1, worker="old")[0].group == 1


def test_exact_plans_versions_and_waits_for_their_publication() -> None:
    pipeline = make(Admission.exact(1, 2), prompts=99, batch_groups=2)
    plans = []
    for target in range(6):
        rollouts = start(pipeline, 99)
        plans += [(r.version, r.last_version) for r in rollouts]
        assert reason(pipeline.dispatch("w", 1, 0.0)) is Reason.UNPUBLISHED
        for r in rollouts:
            finish(pipeline, r, *range(r.version, r.last_version + 1))
        batch = step(pipeline)
        assert {r.last_version for g in batch.groups for r in g.done} == {max(0, target - 1)}
    # Two groups per target; targets 0 and 1 start together, since both need version 0 only.
    expected = [(max(0, t - 3), max(0, t - 1)) for t in range(7) for _ in range(2)]
    assert plans == expected
    assert pipeline.oldest_needed == 3


def test_exact_gives_a_dropped_groups_place_to_the_next_prompt() -> None:
    pipeline = make(Admission.exact(2, 0), prompts=99, batch_groups=2, max_attempts=1)
    rollouts = start(pipeline, 99)
    assert len(rollouts) == 6
    pipeline.fail(rollouts[1].ticket, 0.0)
    (again,) = start(pipeline, 99)
    for r in [*rollouts[:1], *rollouts[2:], again]:
        finish(pipeline, r)
    assert sorted(g.id for g in take(pipeline).groups) == [0, again.group]
