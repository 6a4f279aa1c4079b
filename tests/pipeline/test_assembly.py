"""Which groups a batch takes, and when the trainer has to wait."""

from __future__ import annotations

import pytest

from entr_lab.errors import ConfigError
from entr_lab.pipeline import Admission, Batch, Done, DropReason, Group, Order, Pipeline, Policy, Reason, Wait
from tests.pipeline.helpers import finish, ids, make, start, step


def two_generations(order: object) -> Pipeline:
    """Finished: p1 with version 0, then p3 and p2 with version 1; the target is 1."""
    pipeline = make(Admission.asynchronous(5, 1, policy=Policy.DROP), prompts=4, order=order)
    zero, one = start(pipeline, 2)
    finish(pipeline, zero)
    step(pipeline)
    finish(pipeline, one, 0)
    for rollout in reversed(start(pipeline, 2)):
        finish(pipeline, rollout)
    return pipeline


def hardest(group: Group) -> float:
    return -group.prompt.difficulty


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.FIFO, ["p1", "p3", "p2"]),
        (Order.OLDEST, ["p1", "p3", "p2"]),
        (Order.FRESHEST, ["p3", "p2", "p1"]),
        (hardest, ["p3", "p2", "p1"]),
    ],
)
def test_orders(order: object, expected: list[str]) -> None:
    pipeline = two_generations(order)
    assert [ids(step(pipeline, worker=None))[0] for _ in range(3)] == expected


def test_a_sort_key_goes_with_order_custom_only() -> None:
    config = make().config
    with pytest.raises(ConfigError, match="give a key with order custom"):
        Pipeline(config, order=hardest)


def test_the_trainer_waits_for_old_groups_until_they_are_safe() -> None:
    """Bound 2, one group per batch: with two old groups unfinished, only one more step can be made before them."""
    pipeline = make(Admission.asynchronous(2, 0), prompts=9)
    one, two, three = start(pipeline, 3)
    finish(pipeline, three)
    assert ids(step(pipeline)) == ["p2"]
    pipeline.join("v", 1)
    finish(pipeline, start(pipeline, worker="v")[0])
    # Stepping now would leave two groups of version 0 for the single batch at target 2.
    answer = pipeline.take()
    assert isinstance(answer, Wait)
    assert answer.reason is Reason.OLD_GROUPS
    finish(pipeline, one)
    assert ids(step(pipeline)) == ["p0"]
    finish(pipeline, two)
    assert ids(step(pipeline)) == ["p1"]
    assert pipeline.counts.dropped.total() == 0


def test_wait_overrides_an_order_that_would_let_groups_expire() -> None:
    pipeline = make(Admission.asynchronous(1, 0), prompts=9, order=Order.FRESHEST)
    for rollout in start(pipeline, 2):
        finish(pipeline, rollout)
    step(pipeline)
    finish(pipeline, start(pipeline)[0])
    # p2 is the freshest, but p1 has its last chance now.
    assert ids(step(pipeline)) == ["p1"]
    assert ids(step(pipeline)) == ["p2"]


@pytest.mark.parametrize("train_last", [True, False])
def test_exact_ends_when_replacements_run_out(train_last: bool) -> None:
    pipeline = make(Admission.exact(1, 0), prompts=4, batch_groups=2, max_attempts=1, train_last_partial=train_last)
    pipeline.exhaust()
    rollouts = start(pipeline, 9)
    pipeline.fail(rollouts[0].ticket, 0.0)
    for rollout in rollouts[1:]:
        finish(pipeline, rollout)
    sizes = []
    while isinstance(answer := pipeline.take(), Batch):
        sizes.append(len(answer.groups))
        pipeline.publish(pipeline.version + 1, 0.0)
    assert isinstance(answer, Done)
    assert sizes == ([1, 2] if train_last else [])
    assert pipeline.counts.dropped[DropReason.END_OF_DATA] == (0 if train_last else 3)
