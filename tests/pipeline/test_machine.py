"""The protocol's invariants, by stateful property tests: anything may happen at any time, and still

1. no token of a batch is staler than the bound, and no trajectory spans more versions than allowed;
2. no group is lost, trained twice, or both trained and dropped, across crashes and restores at any event;
3. from any state that can be reached, a fair driver comes to the end: nothing hangs, with dead workers, stragglers,
   an exhausted data set, a full buffer, an incomplete last batch;
4. the counters add up, against an audit from scratch and against the driver's own books;
5. the log, written out and read back, rebuilds the same batches and the same state;
6. policy wait drops nothing for staleness, if rollouts go on after an update as `update` demands.

The driver (driver.py) shares no code with the implementation.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
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
    LossReason,
    Mode,
    OnUpdate,
    Order,
    PipelineConfig,
    Policy,
    Wait,
    read_log,
    replay,
)
from tests.pipeline.driver import Driver


@st.composite
def admissions(draw: st.DrawFn) -> Admission:
    mode = draw(st.sampled_from([Mode.SYNC, Mode.ONE_STEP, Mode.ASYNC, Mode.ASYNC, Mode.ASYNC, Mode.EXACT]))
    if mode is Mode.EXACT:
        return Admission.exact(draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    updates = draw(st.sampled_from([1, 1, 1, 2]))
    if mode is Mode.SYNC:
        return Admission.sync(updates_per_batch=updates)
    if mode is Mode.ONE_STEP:
        return Admission.one_step(updates_per_batch=updates)
    inter = draw(st.integers(updates - 1, updates + 3))
    intra = draw(st.integers(max(0, updates - inter), 3))
    policy = draw(st.sampled_from(Policy))
    return Admission.asynchronous(
        inter,
        intra,
        policy=policy,
        on_update=OnUpdate.HOLD if policy is Policy.WAIT else draw(st.sampled_from(OnUpdate)),
        updates_per_batch=updates,
    )


@st.composite
def configs(draw: st.DrawFn) -> PipelineConfig:
    batch, size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return PipelineConfig(
        admission=draw(admissions()),
        batch_groups=batch,
        group_size=size,
        min_rollouts=draw(st.sampled_from([None, 1, max(1, size - 1)])),
        order=draw(st.sampled_from([Order.FIFO, Order.FRESHEST, Order.OLDEST])),
        drop_zero_variance=size > 1 and draw(st.booleans()),
        deadline=draw(st.sampled_from([None, 5.0])),
        max_in_flight=draw(st.sampled_from([None, None, 1, 2, 4])),
        buffer_groups=draw(st.sampled_from([None, None, batch, batch + 2])),
        max_attempts=draw(st.integers(1, 3)),
        train_last_partial=draw(st.booleans()),
        first_version=draw(st.sampled_from([0, 7])),
    )


class ProtocolMachine(RuleBasedStateMachine):
    """Everything that can happen to a run, in any order."""

    steps: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(config=configs(), prompts=st.integers(0, 30))
    def start(self, config: PipelineConfig, prompts: int) -> None:
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
    )
    def ordinary_life(self, rounds: int, slots: int, keep: int, steps: int, rewards: int) -> None:
        """All workers work, all but the newest `keep` rollouts finish, and the trainer steps."""
        driver = self.driver
        for _ in range(rounds):
            for worker in driver.workers:
                self.update(worker)
                self.dispatch(worker, slots)
            for ticket in driver.rollouts:
                driver.generate(ticket, 1)
            for ticket in sorted(driver.rollouts)[: max(0, len(driver.rollouts) - keep)]:
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

    @rule(data=st.data(), kind=st.sampled_from(["lose", "fail", "late", "time", "time", "crash", "exhaust", "reissue"]))
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
            driver.crash(driver_dies=data.draw(st.booleans()))
        elif kind == "exhaust" and not driver.exhausted and driver.prompts > 8:
            driver.exhaust()
        elif kind == "reissue" and driver.training is not None:
            driver.reissue()

    @invariant()
    def books(self) -> None:
        type(self).steps += 1
        self.driver.check_books()
        if self.honest and self.driver.config.admission.policy is Policy.WAIT:
            assert DropReason.STALE not in self.driver.over.values()

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
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


EXAMPLES = 350

EXPECTED = (
    ["batch", "stale token", "mixed versions", "partial group", "held", "requeued", "late", *DropReason, *LossReason]
    + [f"wait {reason}" for reason in ("training", "generation", "old-groups", "no-prompts", "no-workers")]
    + [f"idle {reason}" for reason in ("staleness", "worker-version", "unpublished", "in-flight", "buffer-full")]
    + ["idle exhausted", "idle no-prompts"]
)


def test_the_invariants_hold_whatever_happens() -> None:
    ProtocolMachine.steps = 0
    ProtocolMachine.seen.clear()
    run_state_machine_as_test(
        ProtocolMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    # Properties of states that were never reached say nothing.
    assert ProtocolMachine.steps >= 10_000
    assert {what: ProtocolMachine.seen[what] for what in EXPECTED if ProtocolMachine.seen[what] < 10} == {}
