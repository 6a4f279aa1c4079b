"""The protocol's invariants, by stateful property tests: anything may happen at any time, and still

1. no token of a batch is staler than the bound, and no trajectory spans more versions than allowed;
2. no group is lost, trained twice, or both trained and dropped, across crashes and restores at any event;
3. from any state that can be reached, a fair driver comes to the end: nothing hangs, with dead workers, stragglers,
   an exhausted data set, a full buffer, an incomplete last batch;
4. the counters add up, against an audit from scratch and against the driver's own books;
5. the log, written out and read back, rebuilds the same batches and the same state;
6. policy wait drops nothing for staleness, if rollouts go on after an update as `update` demands.

The driver (driver.py) shares no code with the implementation.

The machines bite. Mutations of the implementation that they were run against, and that they caught: the
bound one version too wide; intra one too wide at completion and update; an update counted twice; the batch
in training not counted in the target; rollouts of a dead worker not restarted; open groups, the batch in
training, or requeued prompts missing from the snapshot; stale groups not dropped; taken groups left in the
buffer; a trainer that never waits for old groups, or by a condition that is off by one, or takes the
preferred order even where it lets groups expire; the dispatch gate or max_in_flight off by one; the place
of a dropped group forgotten in mode exact; another batch in place of the reissued one; a requeued prompt
lost; the newest token as a group's floor; no incomplete last batch; generated rollouts forgotten by
recover; a late report counted; an event missing from the log. Three survive here for want of the rare state
in some seeds and are caught by module tests: no stale check at completion (test_public_bugs, prime-rl
1901), an outdated worker that gets work, or joins a newer group under wait (test_dispatch).
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from entr_lab.pipeline import (
    Admission,
    Batch,
    Done,
    DropReason,
    OnUpdate,
    Order,
    PipelineConfig,
    Policy,
    Wait,
    read_log,
    replay,
)
from tests.pipeline.driver import Driver

# Settings come from a seeded generator, not from Hypothesis, which would try few and similar ones.


def lockstep(rng: random.Random) -> Admission:
    return rng.choice([Admission.sync, Admission.one_step])(updates_per_batch=rng.choice([1, 1, 2]))


def exact(rng: random.Random) -> Admission:
    return Admission.exact(rng.randint(0, 3), rng.randint(0, 3))


def async_wait(rng: random.Random) -> Admission:
    return asynchronous(rng, Policy.WAIT, OnUpdate.HOLD)


def async_drop(rng: random.Random) -> Admission:
    return asynchronous(rng, rng.choice([Policy.DROP, Policy.REQUEUE]), rng.choice(list(OnUpdate)))


def asynchronous(rng: random.Random, policy: Policy, on_update: OnUpdate) -> Admission:
    updates = rng.choice([1, 1, 1, 2])
    inter = rng.randint(updates - 1, updates + 3)
    intra = rng.randint(max(0, updates - inter), 3)
    return Admission.asynchronous(inter, intra, policy=policy, on_update=on_update, updates_per_batch=updates)


def settings_of(rng: random.Random, admission: Admission) -> PipelineConfig:
    batch, size = rng.randint(1, 3), rng.randint(1, 3)
    return PipelineConfig(
        admission=admission,
        batch_groups=batch,
        group_size=size,
        min_rollouts=rng.choice([None, 1, max(1, size - 1)]),
        order=rng.choice([Order.FIFO, Order.FRESHEST, Order.OLDEST]),
        drop_zero_variance=size > 1 and rng.random() < 0.3,
        deadline=rng.choice([None, 5.0]),
        max_in_flight=rng.choice([None, None, None, 1, 2, 4]),
        buffer_groups=rng.choice([None, None, None, batch, batch + 2]),
        max_attempts=rng.randint(1, 3),
        train_last_partial=rng.random() < 0.7,
        first_version=rng.choice([0, 7]),
    )


class ProtocolMachine(RuleBasedStateMachine):
    """Everything that can happen to a run, in any order."""

    steps: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()
    admission: ClassVar[Callable[[random.Random], Admission]]
    expected: ClassVar[tuple[str, ...]]

    @initialize(seed=st.integers(0, 1 << 30), prompts=st.integers(0, 30), fragile=st.booleans())
    def start(self, seed: int, prompts: int, fragile: bool) -> None:
        rng = random.Random(seed)
        config = settings_of(rng, vars(type(self))["admission"](rng))
        note(str(config))
        self.fragile = fragile
        self.driver = Driver(config)
        self.honest = True
        self.driver.add_prompts(prompts)
        self.driver.join()

    @rule(
        rounds=st.integers(1, 3),
        slots=st.integers(2, 8),
        keep=st.integers(0, 5),
        steps=st.integers(0, 2),
        rewards=st.sampled_from([1, 2, 3]),
        stragglers=st.booleans(),
    )
    def ordinary_life(self, rounds: int, slots: int, keep: int, steps: int, rewards: int, stragglers: bool) -> None:
        """All workers work, all but `keep` rollouts (the newest, or the oldest) finish, and the trainer steps."""
        driver = self.driver
        if not driver.workers:
            driver.join()
        if not driver.exhausted and driver.pipeline.prompts_left < 6:
            driver.add_prompts(6)
        for _ in range(rounds):
            for worker in driver.workers:
                self.update(worker)
                self.dispatch(worker, slots)
            for ticket in driver.rollouts:
                driver.generate(ticket, 1)
            for ticket in sorted(driver.rollouts, reverse=stragglers)[: max(0, len(driver.rollouts) - keep)]:
                if ticket in driver.rollouts:
                    driver.complete(ticket, float(ticket % rewards))
            for _ in range(steps):
                if (self.take() or driver.training is not None) and not driver.reissued:
                    driver.publish()

    @rule(count=st.integers(1, 6), behind=st.integers(0, 2))
    def supply(self, count: int, behind: int) -> None:
        driver = self.driver
        if not driver.exhausted:
            driver.add_prompts(count)
        if len(driver.workers) < 3:
            driver.join(max(driver.config.first_version, driver.version - behind))

    @precondition(lambda self: self.driver.workers)
    @rule(data=st.data(), slots=st.integers(0, 4), updates=st.booleans())
    def one_worker(self, data: st.DataObject, slots: int, updates: bool) -> None:
        worker = self.pick(data, self.driver.workers)
        if updates:
            self.update(worker)
        if slots:
            self.dispatch(worker, slots)

    @precondition(lambda self: self.driver.rollouts or self.driver.unscored)
    @rule(data=st.data(), kind=st.sampled_from(["tokens", "progress", "complete", "generated", "score", "sloppy"]))
    def one_rollout(self, data: st.DataObject, kind: str) -> None:
        driver = self.driver
        if kind == "score" and driver.unscored:
            driver.score(self.pick(data, driver.unscored), data.draw(st.sampled_from([0.0, 1.0])))
        elif kind != "score" and driver.rollouts:
            ticket = self.pick(data, driver.rollouts)
            if kind != "sloppy" or not driver.rollouts[ticket].versions:
                driver.generate(ticket, data.draw(st.integers(1, 3)))
            elif driver.rollouts[ticket].versions[-1] != driver.workers[driver.rollouts[ticket].worker]:
                # It ends without a token after the last update: the contract of `update` is broken.
                self.honest = False
            driver.now += 0.1
            if kind == "progress":
                driver.progress(ticket)
            elif kind in ("complete", "sloppy"):
                driver.complete(ticket, data.draw(st.sampled_from([0.0, 1.0])))
            elif kind == "generated":
                driver.generated(ticket)

    @rule(publishes=st.booleans())
    def trainer(self, publishes: bool) -> None:
        self.take()
        if publishes and self.driver.training is not None and not self.driver.reissued:
            self.driver.publish()

    def update(self, worker: str) -> None:
        self.seen["held"] += bool(self.driver.pipeline.plan_update(worker).held_by)
        self.driver.update(worker)

    def dispatch(self, worker: str, slots: int) -> None:
        answer = self.driver.dispatch(worker, slots)
        if isinstance(answer, Wait):
            self.seen[f"idle {answer.reason}"] += 1

    def pick(self, data: st.DataObject, options: Iterable[Any]) -> Any:
        return data.draw(st.sampled_from(sorted(options)))

    def take(self) -> bool:
        answer = self.driver.take()
        if isinstance(answer, Wait):
            self.seen[f"wait {answer.reason}"] += 1
        elif isinstance(answer, Done):
            assert self.driver.exhausted
            assert self.driver.training is None
            assert len(self.driver.ended_prompts) == self.driver.prompts
        else:
            self.seen["batch"] += 1
            self.seen["stale token"] += sum(lag > 0 for lag in answer.staleness())
            self.seen["mixed versions"] += sum(len(t.spans) > 1 for g in answer.groups for t in g.done)
            self.seen["partial group"] += sum(g.lost > 0 for g in answer.groups)
        return isinstance(answer, Batch)

    @rule(data=st.data(), kind=st.sampled_from(["lose", "fail", "late", "time", "crash", "exhaust", "reissue"]))
    def trouble(self, data: st.DataObject, kind: str) -> None:
        """One rule for all that goes wrong, so that most of the run goes right and gets somewhere."""
        driver = self.driver
        over = set(driver.seen) - set(driver.rollouts) - set(driver.unscored)
        if kind == "lose" and driver.workers:
            driver.lose(self.pick(data, driver.workers))
        elif kind == "fail" and (driver.rollouts or driver.unscored):
            for _ in range(data.draw(st.integers(1, 4))):
                if driver.rollouts or driver.unscored:
                    driver.fail(min([*driver.rollouts, *driver.unscored]))
        elif kind == "late" and over:
            finished = driver.pipeline.counts.finished
            driver.pipeline.fail(self.pick(data, over), driver.now)
            assert driver.pipeline.counts.finished == finished
        elif kind == "time":
            driver.expire(data.draw(st.sampled_from([0.5, 3.0, 6.0])))
        elif kind == "crash":
            self.crash(driver_dies=True)
        elif kind == "exhaust" and not driver.exhausted and driver.prompts > 8:
            driver.exhaust()
        elif kind == "reissue" and driver.training is not None:
            driver.reissue()

    def crash(self, *, driver_dies: bool) -> None:
        pipeline = self.driver.pipeline
        self.seen["crash in training"] += pipeline.training is not None
        self.seen["crash with open groups"] += pipeline.open_groups > 0
        self.seen["crash with a buffer"] += pipeline.ready_groups > 0
        self.seen["crash before rewards"] += len(pipeline.pending_rewards()) > 0
        self.driver.crash(driver_dies=driver_dies)

    @invariant()
    def books(self) -> None:
        type(self).steps += 1
        if self.fragile:  # the process restarts after every single event
            self.crash(driver_dies=False)
        self.driver.check_books()
        if self.honest and self.driver.config.admission.policy is Policy.WAIT:
            assert DropReason.STALE not in self.driver.over.values()

    def teardown(self) -> None:
        if not hasattr(self, "driver") or sys.exc_info()[0] is not None:
            return  # a rule failed already, and its error is the one to show
        driver = self.driver
        driver.drain()
        self.books()
        assert len(driver.ended_prompts) == driver.prompts, "a prompt was lost"
        assert [groups for _, _, groups in driver.batches] == driver.published
        assert_replays(driver)
        counts = driver.pipeline.counts
        self.seen.update(counts.dropped + counts.lost + Counter(requeued=counts.requeued, late=counts.late))


def assert_replays(driver: Driver) -> None:
    """The log, through bytes, gives the same batches and the same state."""
    log = read_log(driver.log_bytes())
    assert (log.unread, log.reason) == (0, "")
    again, batches = replay(log.events)
    once = {b.step: (b.step, b.target_version, tuple(g.id for g in b.groups)) for b in batches}
    assert list(once.values()) == driver.batches
    assert json.dumps(again.snapshot()) == json.dumps(driver.pipeline.snapshot())


class Lockstep(ProtocolMachine):
    """Sync and one-step, with one or two updates per batch."""

    admission = lockstep
    expected = ("wait training",)


class Exact(ProtocolMachine):
    """Both lags forced."""

    admission = exact
    expected = ("idle unpublished", "mixed versions")


class AsyncWait(ProtocolMachine):
    """Asynchronous, where the trainer waits for old groups."""

    admission = async_wait
    expected = ("wait old-groups", "mixed versions")


class AsyncDrop(ProtocolMachine):
    """Asynchronous, where stale groups are dropped, and perhaps generated again."""

    admission = async_drop
    expected = ("requeued", "stale", "mixed versions")


EXAMPLES = 110
EVERYWHERE = (
    *("batch", "stale token", "worker-lost", "late", "wait generation"),
    *("crash in training", "crash with open groups", "crash with a buffer"),
)


@pytest.mark.parametrize("machine", [Lockstep, Exact, AsyncWait, AsyncDrop])
def test_the_invariants_hold_whatever_happens(machine: type[ProtocolMachine]) -> None:
    machine.steps, machine.seen = 0, Counter()
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    # Properties of states that were never reached say nothing.
    assert machine.steps >= 3_000
    assert {what: machine.seen[what] for what in (*EVERYWHERE, *machine.expected) if not machine.seen[what]} == {}
