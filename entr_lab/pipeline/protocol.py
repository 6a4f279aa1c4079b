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
from collections.abc import Iterable
from typing import Any

from entr_lab.errors import ConfigError, ProtocolError
from entr_lab.pipeline.admission import Mode, OnUpdate
from entr_lab.pipeline.assembly import OrderKey, assemble
from entr_lab.pipeline.config import Order, PipelineConfig
from entr_lab.pipeline.decisions import Batch, Done, LossReason, UpdatePlan, Wait
from entr_lab.pipeline.events import SCHEMA, Event, Sink
from entr_lab.pipeline.records import Prompt, Worker
from entr_lab.pipeline.rollouts import RolloutEvents
from entr_lab.pipeline.settle import drop_stale, give_up, lose_worker, recover
from entr_lab.pipeline.snapshot import load
from entr_lab.pipeline.state import Closed, State, decrement

__all__ = ["Pipeline"]


class Pipeline(RolloutEvents):
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
        over = tuple(t.ticket for t in w.started_before(state.version - admission.max_intra))
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
        if version != state.version:
            self._check_published(version)
        if version < w.version:
            raise ProtocolError(f"{worker!r} has version {w.version}, got {version}; weights never go back.")
        admission = state.config.admission
        if admission.mode is not Mode.EXACT:
            over = w.started_before(version - admission.max_intra)
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
            state.holding[version] = state.holding.get(version, 0) + len(w.held)
        w.version = version
        self._record("update", worker=worker, version=version, now=now)

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

    def _check_published(self, version: int) -> None:
        if not self.config.first_version <= version <= self._state.version:
            raise ProtocolError(
                f"version {version} is outside the published {self.config.first_version}…{self._state.version}; "
                f"publish() comes before workers load."
            )
