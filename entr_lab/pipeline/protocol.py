"""The asynchronous protocol as a deterministic state machine: events in, decisions out.

A driver (the simulator with a virtual clock, the trainer with the wall clock) reports what happened and does what it is
told. No clock, no input or output, no threads: time is a number that comes with an event, and the same
events give the same decisions. The life of a group:

    prompt -> open -> ready -> training -> trained
                \\_______\\_____________________> dropped, for a named reason (and requeued, if so configured)

A driver's loop, in one line each:

    worker is there        join(worker, version);  lose(worker) when it is gone
    worker has free slots  dispatch(worker, slots) -> rollouts to start, or why none
    rollout reports        progress / complete / fail (ticket, …);  drain_aborts() -> what to stop
    trainer is free        take() -> Batch, Wait or Done;  publish(version) after the step
    weights are published  plan_update(worker) -> load now or hold;  update(worker, version) once loaded
    time passed            expire() at next_deadline
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from entr_lab.errors import ConfigError, ProtocolError
from entr_lab.pipeline.admission import Mode, OnUpdate
from entr_lab.pipeline.assembly import OrderKey, assemble
from entr_lab.pipeline.config import Order, PipelineConfig
from entr_lab.pipeline.decisions import Batch, Done, LossReason, Outcome, UpdatePlan, Wait
from entr_lab.pipeline.dispatch import dispatch
from entr_lab.pipeline.events import SCHEMA, Event, Sink, plain
from entr_lab.pipeline.records import Prompt, Trajectory, Worker
from entr_lab.pipeline.settle import check_versions, drop_stale, end, expire, give_up, lose_worker, recover, score
from entr_lab.pipeline.snapshot import load
from entr_lab.pipeline.state import Closed, State, decrement
from entr_lab.pipeline.versions import VersionSpan
from entr_lab.pipeline.views import PipelineView

__all__ = ["Pipeline"]


class Pipeline(PipelineView):
    """The protocol; see the module for its life cycle and `docs/pipeline.md` for its invariants.

    Args:
        config: sizes, bounds and policies.
        order: sort key of `Order.CUSTOM`; smallest first.
        closed: called once per group that is over, with its drop reason or None where it was trained.
        log: receives every event that changes the pipeline, from `start` on.

    Raises:
        ConfigError: a key is given without `Order.CUSTOM`, or the other way round.
    """

    def __init__(
        self,
        config: PipelineConfig,
        *,
        order: OrderKey | None = None,
        closed: Closed | None = None,
        log: Sink | None = None,
    ) -> None:
        if (order is not None) != (config.order is Order.CUSTOM):
            raise ConfigError(f"order {config.order} and a sort key do not fit; give a key with order custom, only.")
        self._state = State(config, closed)
        self._key = order
        self._log = log
        if log is not None:
            log(Event(0, "start", {"schema": SCHEMA, "config": config.to_json()}))

    @classmethod
    def restore(
        cls,
        snapshot: dict[str, Any],
        *,
        order: OrderKey | None = None,
        closed: Closed | None = None,
        log: Sink | None = None,
    ) -> Pipeline:
        """Rebuild a pipeline from `snapshot` data; a log that is given begins with `resume`.

        Call `recover` next if the driver died, since its workers are gone.

        Raises:
            DataError: the snapshot is damaged or of another schema.
            ConfigError: the sort key is missing or not wanted.
        """
        state = load(snapshot)
        pipeline = cls(state.config, order=order)
        state.closed = closed
        pipeline._state, pipeline._log = state, log
        if log is not None:
            log(Event(state.seq - 1, "resume", {"schema": SCHEMA, "state": snapshot}))
        return pipeline

    def attach_log(self, log: Sink | None) -> None:
        """Send events from now on to `log`, which has all events so far (after `replay`, say)."""
        self._log = log

    # --- data -------------------------------------------------------------------------------------------------------

    def add_prompts(self, prompts: Iterable[Prompt]) -> None:
        """Append prompts to the queue.

        Raises:
            ProtocolError: after `exhaust`, or a difficulty is not a number.
        """
        state = self._state
        if state.exhausted:
            raise ProtocolError("prompts were added after exhaust(); call exhaust() after the last prompt.")
        added = list(prompts)
        for prompt in added:
            if not math.isfinite(prompt.difficulty):
                raise ProtocolError(f"prompt {prompt.id!r} has difficulty {prompt.difficulty!r}; give a number.")
        state.prompts.extend(added)
        state.counts.prompts += len(added)
        self._record("prompts", prompts=[list(prompt) for prompt in added])

    def exhaust(self) -> None:
        """Say that no more prompts will come."""
        self._state.exhausted = True
        self._record("exhaust")

    # --- workers ----------------------------------------------------------------------------------------------------

    def join(self, worker: str, version: int) -> None:
        """Add a worker that has weights `version`.

        Raises:
            ProtocolError: it is there already, or its version was not published yet.
        """
        if worker in self._state.workers:
            raise ProtocolError(f"worker {worker!r} is there already; report lose() before it joins again.")
        self._check_published(version)
        self._state.workers[worker] = Worker(worker, version)
        self._record("join", worker=worker, version=version)

    def lose(self, worker: str, now: float) -> None:
        """Remove a dead worker; its rollouts are started again elsewhere, before anything new."""
        lose_worker(self._state, self._worker(worker), now)
        self._record("lose", worker=worker, now=now)

    def recover(self, now: float) -> None:
        """Report that the driver died and came back: no worker is there, nothing runs, the step was not published.

        What was running is started again (without counting as an attempt), open groups get a new deadline, and a batch
        in training is given out again.
        """
        recover(self._state, now)
        self._record("recover", now=now)

    def plan_update(self, worker: str) -> UpdatePlan:
        """Say whether `worker` should load the newest version now, and what that costs."""
        state, w = self._state, self._worker(worker)
        admission = state.config.admission
        if w.version == state.version or admission.mode is Mode.EXACT:
            return UpdatePlan(None)
        oldest = state.version - admission.max_intra
        over = tuple(t.ticket for t in w.held.values() if t.first_version < oldest)
        if over and admission.on_update is OnUpdate.HOLD:
            return UpdatePlan(None, held_by=over)
        return UpdatePlan(state.version, aborts=over)

    def update(self, worker: str, version: int, now: float) -> None:
        """Report that `worker` generates under `version` from now on.

        Every rollout that it still holds must go on to at least one more token (else report it `generated` or
        `complete` before): policy wait counts on it when it decides how far the trainer may go ahead. Rollouts that
        this stretches past max_intra are given up (`on_update` abort).

        Raises:
            ProtocolError: the version is not published, goes back, or stretches a rollout under `on_update` hold.
        """
        state, w = self._state, self._worker(worker)
        self._check_published(version)
        if version < w.version:
            raise ProtocolError(f"{worker!r} has version {w.version}, got {version}; weights never go back.")
        admission = state.config.admission
        if admission.mode is not Mode.EXACT:
            over = [t for t in w.held.values() if version - t.first_version > admission.max_intra]
            if over and admission.on_update is OnUpdate.HOLD:
                raise ProtocolError(
                    f"{worker!r} loaded version {version} although ticket {over[0].ticket} may not go past "
                    f"{over[0].first_version + admission.max_intra}; follow plan_update()."
                )
            for trajectory in over:
                if trajectory.ticket in state.flight:
                    give_up(state, trajectory, LossReason.INTRA, now)
        if w.held:
            decrement(state.holding, w.version, len(w.held))
            state.holding[version] += len(w.held)
        w.version = version
        self._record("update", worker=worker, version=version, now=now)

    # --- rollouts ---------------------------------------------------------------------------------------------------

    def dispatch(self, worker: str, slots: int, now: float) -> list[Trajectory] | Wait:
        """Start up to `slots` rollouts on `worker`: at least one, or the reason why none."""
        started = dispatch(self._state, self._worker(worker), slots, now)
        if isinstance(started, list):
            self._state.seq += 1
            if self._log is not None:
                self._write("dispatch", worker=worker, slots=slots, now=now, answer=started)
        return started

    def progress(self, ticket: int, spans: Sequence[VersionSpan]) -> None:
        """Report the tokens that a running rollout has so far (optional; sharpens what is known of lost work)."""
        trajectory = self._state.flight.get(ticket)
        if trajectory is not None:
            check_versions(self._state, trajectory, spans)
            trajectory.spans = tuple(spans)
            self._record("progress", ticket=ticket, spans=spans)

    def complete(self, ticket: int, spans: Sequence[VersionSpan], reward: float, now: float) -> Outcome:
        """Report a finished rollout with its tokens' versions and its reward: `generated` and `score` in one.

        Raises:
            ProtocolError: the ticket was never issued, the spans cannot be true, or the reward is not a number.
        """
        state = self._state
        trajectory = state.flight.get(ticket)
        if trajectory is None:
            return self._late(ticket, now)
        self._check_held(trajectory)
        check_versions(state, trajectory, spans)
        _check_reward(ticket, reward)
        answer = end(state, trajectory, spans, now) or score(state, trajectory, reward, now)
        state.seq += 1
        if self._log is not None:
            self._write("complete", ticket=ticket, spans=spans, reward=reward, now=now, answer=answer)
        return answer

    def generated(self, ticket: int, spans: Sequence[VersionSpan], now: float) -> Outcome:
        """Report the last token of a rollout whose reward takes longer; it leaves its worker, `score` finishes it.

        Raises:
            ProtocolError: the ticket was never issued, or the spans cannot be true.
        """
        state = self._state
        trajectory = state.flight.get(ticket)
        if trajectory is None:
            return self._late(ticket, now)
        self._check_held(trajectory)
        check_versions(state, trajectory, spans)
        answer = end(state, trajectory, spans, now) or Outcome.OPEN
        self._record("generated", ticket=ticket, spans=spans, now=now, answer=answer)
        return answer

    def score(self, ticket: int, reward: float, now: float) -> Outcome:
        """Report the reward of a rollout that was reported `generated`.

        Raises:
            ProtocolError: the ticket was never issued or is not generated yet, or the reward is not a number.
        """
        trajectory = self._state.flight.get(ticket)
        if trajectory is None:
            return self._late(ticket, now)
        if trajectory.ended < 0:
            raise ProtocolError(f"ticket {ticket} has no tokens yet; report generated() first, or use complete().")
        _check_reward(ticket, reward)
        answer = score(self._state, trajectory, reward, now)
        self._record("score", ticket=ticket, reward=reward, now=now, answer=answer)
        return answer

    def fail(self, ticket: int, now: float) -> Outcome:
        """Report that a rollout came to nothing; it is started again up to `max_attempts` times."""
        trajectory = self._state.flight.get(ticket)
        if trajectory is None:
            return self._late(ticket, now)
        answer = give_up(self._state, trajectory, LossReason.FAILED, now)
        self._record("fail", ticket=ticket, now=now, answer=answer)
        return answer

    def expire(self, now: float) -> None:
        """Settle the open groups whose deadline has passed, with what they have."""
        expire(self._state, now)
        self._record("expire", now=now)

    def drain_aborts(self) -> list[Trajectory]:
        """Return the rollouts that workers should stop, since the last call; what they still report is ignored."""
        aborts, self._state.aborts = self._state.aborts, []
        return aborts

    # --- trainer ----------------------------------------------------------------------------------------------------

    def take(self) -> Batch | Wait | Done:
        """Return the next batch, or what has to happen first."""
        decision = assemble(self._state, self._key)
        if not isinstance(decision, Wait):
            self._state.reissue = False
            self._record("take", answer=decision)
        return decision

    def publish(self, version: int, now: float) -> None:
        """Report that the batch was trained and that `version` came out of it; only now it counts as consumed.

        Raises:
            ProtocolError: no batch is in training, or `version` is not the target plus `updates_per_batch`.
        """
        state = self._state
        batch, k = state.training, state.config.admission.updates_per_batch
        if batch is None:
            raise ProtocolError(f"version {version} was published without a batch; take() one first.")
        if version != batch.target_version + k:
            raise ProtocolError(
                f"batch {batch.step} started from {batch.target_version} and takes {k} updates, so it publishes "
                f"{batch.target_version + k}, not {version}; count each optimiser step once."
            )
        state.training, state.reissue, state.version = None, False, version
        state.counts.trained += len(batch.groups)
        if state.closed is not None:
            for group in batch.groups:
                state.closed(group, None)
        drop_stale(state, now)
        self._record("publish", version=version, now=now)

    def reissue(self) -> None:
        """Report that the trainer lost its step: the next `take` returns the same batch again.

        Raises:
            ProtocolError: no batch is in training.
        """
        if self._state.training is None:
            raise ProtocolError("no batch is in training, so none can be reissued.")
        self._state.reissue = True
        self._record("reissue")

    # --- inside -----------------------------------------------------------------------------------------------------

    def _record(self, kind: str, **data: Any) -> None:
        self._state.seq += 1
        if self._log is not None:
            self._write(kind, **data)

    def _write(self, kind: str, **data: Any) -> None:
        assert self._log is not None
        self._log(Event(self._state.seq - 1, kind, plain(data)))

    def _check_published(self, version: int) -> None:
        if not self.config.first_version <= version <= self._state.version:
            raise ProtocolError(
                f"version {version} is outside the published {self.config.first_version}…{self._state.version}; "
                f"publish() comes before workers load."
            )

    def _check_held(self, trajectory: Trajectory) -> None:
        if trajectory.ended >= 0:
            raise ProtocolError(f"ticket {trajectory.ticket} was reported generated() already; report score().")

    def _late(self, ticket: int, now: float) -> Outcome:
        if not 0 <= ticket < self._state.next_ticket:
            raise ProtocolError(f"ticket {ticket} was never issued; report the tickets that dispatch() returned.")
        self._state.counts.late += 1
        self._record("fail", ticket=ticket, now=now, answer=Outcome.LATE)
        return Outcome.LATE


def _check_reward(ticket: int, reward: float) -> None:
    if not math.isfinite(reward):
        raise ProtocolError(f"ticket {ticket} has reward {reward!r}; report a rollout without reward with fail().")
