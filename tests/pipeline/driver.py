"""A driver for tests: it generates rollouts for a `Pipeline` and keeps its own books, sharing no code with it.

It knows, token by token, which weights produced what; it knows which groups it was told to train or that were dropped;
and it checks every batch against the bound with plain loops.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from entr_lab.pipeline import (
    Batch,
    Done,
    DropReason,
    Event,
    Group,
    Mode,
    Outcome,
    Pipeline,
    PipelineConfig,
    Policy,
    Prompt,
    VersionSpan,
    Wait,
    encode,
)


@dataclass
class Rollout:
    """A running rollout as the driver sees it."""

    ticket: int
    worker: str
    plan: list[int]
    versions: list[int] = field(default_factory=list)


class Driver:
    """Drives one pipeline; every public method is one thing that can happen in a real run."""

    def __init__(self, config: PipelineConfig) -> None:
        self.config = config
        self.log: list[Event] = []
        self.over: dict[int, DropReason | None] = {}
        self.ended_prompts: dict[str, DropReason | None] = {}
        self.batches: list[tuple[int, int, tuple[int, ...]]] = []
        self.published: list[tuple[int, ...]] = []
        self.pipeline = Pipeline(config, closed=self.closed, log=self.log.append)
        self.prompts = 0
        self.exhausted = False
        self.workers: dict[str, int] = {}
        self.rollouts: dict[int, Rollout] = {}
        self.unscored: dict[int, Rollout] = {}
        self.seen: list[int] = []
        self.now = 0.0
        self.version = config.first_version
        self.training: Batch | None = None
        self.reissued = False
        self.names = 0

    # --- what happens ------------------------------------------------------------------------------------------------

    def closed(self, group: Group, reason: DropReason | None) -> None:
        assert group.id not in self.over, f"group {group.id} ended twice"
        self.over[group.id] = reason
        if reason is DropReason.END_OF_DATA:
            assert self.exhausted
            assert not self.config.train_last_partial or self.config.admission.mode is Mode.EXACT
        requeued = (
            self.config.admission.policy is Policy.REQUEUE
            and reason in (DropReason.STALE, DropReason.STRAGGLER, DropReason.TOO_FEW)
            and group.prompt.attempt < self.config.max_attempts
        )
        if not requeued:
            assert group.prompt.id not in self.ended_prompts, f"prompt {group.prompt.id} ended twice"
            self.ended_prompts[group.prompt.id] = reason

    def add_prompts(self, count: int) -> None:
        new = [Prompt(str(self.prompts + i), "ab"[i % 2], float(i)) for i in range(count)]
        self.prompts += count
        self.pipeline.add_prompts(new)

    def exhaust(self) -> None:
        self.exhausted = True
        self.pipeline.exhaust()

    def join(self, version: int | None = None) -> str:
        name = f"w{self.names}"
        self.names += 1
        self.workers[name] = self.version if version is None else version
        self.pipeline.join(name, self.workers[name])
        return name

    def lose(self, worker: str) -> None:
        del self.workers[worker]
        self.rollouts = {t: r for t, r in self.rollouts.items() if r.worker != worker}
        self.pipeline.lose(worker, self.now)
        self.stop_aborted()

    def update(self, worker: str) -> bool:
        plan = self.pipeline.plan_update(worker)
        if plan.version is None:
            return False
        assert plan.version > self.workers[worker]
        self.workers[worker] = plan.version
        self.pipeline.update(worker, plan.version, self.now)
        stopped = self.stop_aborted()
        assert set(plan.aborts) <= stopped
        return True

    def dispatch(self, worker: str, slots: int) -> list[int] | Wait:
        answer = self.pipeline.dispatch(worker, slots, self.now)
        if isinstance(answer, Wait):
            return answer
        assert 1 <= len(answer) <= slots
        for order in answer:
            assert order.ticket not in self.seen
            plan = list(range(order.version, order.last_version + 1))
            self.rollouts[order.ticket] = Rollout(order.ticket, worker, plan)
            self.seen.append(order.ticket)
        self.stop_aborted()
        return [order.ticket for order in answer]

    def generate(self, ticket: int, tokens: int) -> None:
        """A rollout gets tokens: under its worker's weights, or through the versions that mode exact planned."""
        rollout = self.rollouts[ticket]
        if rollout.plan:
            done = len(set(rollout.versions))
            step = rollout.plan[min(done, len(rollout.plan) - 1)]
            rollout.versions += [step] * tokens
        else:
            rollout.versions += [self.workers[rollout.worker]] * tokens

    def spans(self, rollout: Rollout) -> list[VersionSpan]:
        spans: list[VersionSpan] = []
        for position, version in enumerate(rollout.versions):
            if spans and spans[-1].version == version:
                spans[-1] = spans[-1]._replace(stop=position + 1)
            else:
                spans.append(VersionSpan(version, position, position + 1))
        return spans

    def progress(self, ticket: int) -> None:
        rollout = self.rollouts[ticket]
        if rollout.versions:
            self.pipeline.progress(ticket, self.spans(rollout))

    def complete(self, ticket: int, reward: float) -> Outcome:
        rollout = self.rollouts.pop(ticket)
        outcome = self.pipeline.complete(ticket, self.spans(rollout), reward, self.now)
        self.stop_aborted()
        return outcome

    def generated(self, ticket: int) -> None:
        rollout = self.rollouts.pop(ticket)
        if self.pipeline.generated(ticket, self.spans(rollout), self.now) is Outcome.OPEN:
            self.unscored[ticket] = rollout
        self.stop_aborted()

    def score(self, ticket: int, reward: float) -> None:
        del self.unscored[ticket]
        self.pipeline.score(ticket, reward, self.now)
        self.stop_aborted()

    def fail(self, ticket: int) -> None:
        self.rollouts.pop(ticket, None)
        self.unscored.pop(ticket, None)
        self.pipeline.fail(ticket, self.now)
        self.stop_aborted()

    def expire(self, seconds: float) -> None:
        self.now += seconds
        self.pipeline.expire(self.now)
        self.stop_aborted()

    def take(self) -> Batch | Wait | Done:
        answer = self.pipeline.take()
        self.stop_aborted()
        if isinstance(answer, Batch):
            again = self.training is not None
            assert again == self.reissued
            if again:
                assert [g.id for g in self.training.groups] == [g.id for g in answer.groups]
            else:
                self.batches.append((answer.step, answer.target_version, tuple(g.id for g in answer.groups)))
                self.check_batch(answer)
            self.training, self.reissued = answer, False
        return answer

    def publish(self) -> None:
        assert self.training is not None
        self.version += self.config.admission.updates_per_batch
        self.published.append(tuple(g.id for g in self.training.groups))
        self.training, self.reissued = None, False
        self.pipeline.publish(self.version, self.now)
        self.stop_aborted()

    def reissue(self) -> None:
        self.pipeline.reissue()
        self.reissued = True

    def crash(self, *, driver_dies: bool) -> None:
        """Everything in memory is gone; a snapshot that went through JSON is all that is left."""
        data = json.loads(json.dumps(self.pipeline.snapshot()))
        self.pipeline = Pipeline.restore(data, closed=self.closed)
        self.pipeline.attach_log(self.log.append)
        assert json.loads(json.dumps(self.pipeline.snapshot())) == data
        if driver_dies:
            self.now = 0.0
            self.pipeline.recover(self.now)
            self.workers, self.rollouts, self.unscored = {}, {}, {}
            self.reissued = self.training is not None

    def stop_aborted(self) -> set[int]:
        tickets = {order.ticket for order in self.pipeline.drain_aborts()}
        for ticket in tickets:
            self.rollouts.pop(ticket, None)
        # Rewards of a group that was closed meanwhile are of no use; reporting them is allowed and ignored.
        wanted = set(self.pipeline.pending_rewards())
        self.unscored = {t: r for t, r in self.unscored.items() if t in wanted}
        return tickets

    # --- what must hold ----------------------------------------------------------------------------------------------

    def check_batch(self, batch: Batch) -> None:
        admission = self.config.admission
        assert batch.target_version == self.version
        assert 1 <= len(batch.groups) <= self.config.batch_groups
        assert batch.last == (len(batch.groups) < self.config.batch_groups)
        assert not batch.last or (self.exhausted and self.config.train_last_partial)
        trained = [g for groups in self.published for g in groups]
        for group in batch.groups:
            assert group.id not in trained
            assert group.id not in self.over
            assert len(group.done) >= self.config.needed
            assert len({t.index for t in group.done}) == len(group.done)
            for t in group.done:
                versions = [span.version for span in t.spans for _ in range(span.start, span.stop)]
                # The last update that uses the batch starts from here.
                last_update = batch.target_version + admission.updates_per_batch - 1
                for version in versions:
                    assert 0 <= last_update - version <= admission.max_inter + admission.max_intra
                assert max(versions) - min(versions) <= admission.max_intra
                if admission.mode is Mode.EXACT:
                    first = self.config.first_version
                    oldest = batch.target_version - admission.max_inter - admission.max_intra
                    assert versions[0] == max(first, oldest)
                    assert versions[-1] <= max(first, batch.target_version - admission.max_inter)
                else:
                    assert last_update - versions[-1] <= admission.max_inter
                if admission.mode is Mode.SYNC and admission.updates_per_batch == 1:
                    assert set(versions) == {batch.target_version}

    def check_books(self) -> None:
        """Compare the pipeline's counters with what this driver saw."""
        pipeline = self.pipeline
        pipeline.audit()
        assert pipeline.version == self.version
        assert pipeline.workers == self.workers
        for worker in self.workers:
            assert sorted(pipeline.running(worker)) == sorted(t for t, r in self.rollouts.items() if r.worker == worker)
        assert sorted(pipeline.pending_rewards()) == sorted(self.unscored)
        trained = [g for groups in self.published for g in groups]
        assert len(trained) == len(set(trained)) == pipeline.counts.trained
        assert sorted(trained) == sorted(g for g, reason in self.over.items() if reason is None)
        dropped = [reason for reason in self.over.values() if reason is not None]
        assert len(dropped) == pipeline.counts.dropped.total()
        limit = self.config.max_in_flight
        assert limit is None or pipeline.open_groups <= limit
        limit = self.config.buffer_groups
        assert limit is None or pipeline.open_groups + pipeline.ready_groups <= limit

    def log_bytes(self) -> bytes:
        return b"".join(encode(event) for event in self.log)

    # --- a fair run to the end ---------------------------------------------------------------------------------------

    def drain(self, *, limit: int = 1000) -> None:
        """Do whatever can be done, fairly, until the pipeline says Done; a protocol that can hang runs into `limit`."""
        if not self.exhausted:
            self.exhaust()
        for _ in range(limit):
            if not self.workers:
                self.join()
            for worker in list(self.workers):
                self.update(worker)
                self.dispatch(worker, 8)
            # The oldest rollouts end in every round, so that nothing waits for ever.
            for ticket in sorted(self.rollouts)[:12]:
                if ticket in self.rollouts:
                    self.generate(ticket, 1)
                    self.complete(ticket, float(ticket % 3))
            for ticket in sorted(self.unscored):
                if ticket in self.unscored:
                    self.score(ticket, float(ticket % 2))
            answer = self.take()
            if isinstance(answer, Batch) or self.training is not None:
                self.publish()
            elif isinstance(answer, Done):
                return
        raise AssertionError(f"no end after {limit} rounds: {answer}, {self.pipeline.counts}")
