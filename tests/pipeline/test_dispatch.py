"""Which rollouts start where, and the reason when none does."""

from __future__ import annotations

import random

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, Event, Pipeline, Policy, Reason, Wait
from tests.pipeline.helpers import finish, load, make, spans, start, step, take


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


ADMISSIONS = {
    "wait": Admission.asynchronous(2, 1),
    "drop": Admission.asynchronous(2, 1, policy=Policy.DROP),
    "exact": Admission.exact(1, 1),
    "one-step": Admission.one_step(),
}


def mixed(admission: Admission, seed: int, log: list[Event] | None = None) -> tuple[Pipeline, list[str]]:
    """A pipeline with workers of several versions and groups in all stages, and an order in which to ask them."""
    rng = random.Random(seed)
    pipeline = make(admission, prompts=14, group_size=3, batch_groups=2, log=log.append if log is not None else None)
    pipeline.join("v", 0)
    for _ in range(4):
        for worker in "wv":
            pipeline.dispatch(worker, rng.randint(1, 5), 0.0)
        for worker in "wv":
            for ticket in pipeline.running(worker):
                if rng.random() < 0.2:
                    pipeline.fail(ticket, 0.0)
                elif admission is not ADMISSIONS["exact"] and rng.random() < 0.8:
                    pipeline.complete(ticket, spans(pipeline.workers[worker]), rng.random(), 0.0)
        if not isinstance(pipeline.take(), Wait):
            pipeline.publish(pipeline.version + 1, 0.0)
        if rng.random() < 0.7:
            load(pipeline, "w")
    return pipeline, rng.choices("wv", [3, 1], k=rng.randint(0, 12))


@pytest.mark.parametrize("admission", ADMISSIONS.values(), ids=ADMISSIONS)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("logged", [False, True])
def test_dispatching_to_each_is_dispatching_one_by_one(admission: Admission, seed: int, logged: bool) -> None:
    logs: tuple[list[Event] | None, list[Event] | None] = ([], []) if logged else (None, None)
    (single, workers), (bulk, _) = mixed(admission, seed, logs[0]), mixed(admission, seed, logs[1])
    started = []
    for worker in workers:
        answer = single.dispatch(worker, 1, 5.0)
        if isinstance(answer, Wait):
            break
        started += answer
    given = bulk.dispatch_each(workers, 5.0)
    assert [(t.ticket, t.group, t.index, t.worker) for t in given] == [
        (t.ticket, t.group, t.index, t.worker) for t in started
    ]
    assert bulk.snapshot() == single.snapshot()
    assert logs[0] == logs[1]
    bulk.audit()


def test_an_unknown_worker_is_named_before_anything_starts() -> None:
    pipeline = make(prompts=3)
    with pytest.raises(ProtocolError, match="'nobody' is unknown"):
        pipeline.dispatch_each(["w", "nobody"], 0.0)
    assert pipeline.counts.started == 0


@pytest.mark.parametrize("admission", ADMISSIONS.values(), ids=ADMISSIONS)
@pytest.mark.parametrize("seed", range(25))
def test_closed_for_everybody_means_that_no_worker_of_any_version_gets_one(admission: Admission, seed: int) -> None:
    pipeline, _ = mixed(admission, seed)
    for version in range(pipeline.version + 1):
        pipeline.join(f"of {version}", version)
    newest_first = sorted(pipeline.workers, key=lambda worker: -pipeline.workers[worker])
    closed = None
    while closed is None:
        closed = pipeline.closed_for
        answers = [pipeline.dispatch(worker, 1, 0.0) for worker in newest_first]
        if closed is None:  # whoever may have a rollout, the newest weights may
            assert not isinstance(answers[0], Wait)
    assert reason(answers[0]) is closed
    assert all(isinstance(answer, Wait) for answer in answers)
