"""What workers report about rollouts, and what they should start or stop.

The half of `Pipeline` that is called once per rollout or more; kept lean, since a simulation makes millions of calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.decisions import LossReason, Outcome, Wait
from entr_lab.pipeline.dispatch import dispatch, dispatch_each
from entr_lab.pipeline.events import Event, Sink, plain
from entr_lab.pipeline.records import Trajectory
from entr_lab.pipeline.settle import check_versions, end, expire, finish, give_up, score
from entr_lab.pipeline.versions import VersionSpan
from entr_lab.pipeline.views import PipelineView

__all__ = ["Report", "RolloutEvents"]

Report = tuple[int, Sequence[VersionSpan], float, float]
"""A finished rollout: its ticket, the versions of its tokens, its reward, when it ended (s)."""


class RolloutEvents(PipelineView):
    """Dispatch and reports; a base of `Pipeline`, not used alone."""

    _log: Sink | None

    def dispatch(self, worker: str, slots: int, now: float) -> list[Trajectory] | Wait:
        """Start up to `slots` rollouts on `worker`: at least one, or the reason why none."""
        started = dispatch(self._state, self._worker(worker), slots, now)
        if isinstance(started, list):
            self._state.seq += 1
            if self._log is not None:
                self._write("dispatch", worker=worker, slots=slots, now=now, answer=started)
        return started

    def dispatch_each(self, workers: Sequence[str], now: float) -> list[Trajectory]:
        """Start one rollout on each of `workers`, in order, until one may not start; `dispatch` says why not.

        The same events, decisions and log as one call of `dispatch(worker, 1, now)` for each, but for the refused one.
        """
        try:
            them = list(map(self._state.workers.__getitem__, workers))
        except KeyError as error:
            them = [self._worker(error.args[0])]  # which says that it is unknown
        if self._log is None:
            started = dispatch_each(self._state, them, now)
            self._state.seq += len(started)
            return started
        started = []
        for worker in workers:
            given = self.dispatch(worker, 1, now)
            if isinstance(given, Wait):
                break
            started += given
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
        if trajectory.ended >= 0 or not math.isfinite(reward):
            self._check_held(trajectory)
            _check_reward(ticket, reward)
        answer = finish(state, trajectory, spans, reward, now)
        state.seq += 1
        if self._log is not None:
            self._write("complete", ticket=ticket, spans=spans, reward=reward, now=now, answer=answer)
        return answer

    def complete_each(self, reports: Iterable[Report]) -> list[Outcome]:
        """Report many finished rollouts, each `(ticket, spans, reward, now)`, in order; `complete` for each of them.

        Raises:
            ProtocolError: as `complete`; what comes before the wrong report is counted, what comes after it is not.
        """
        if self._log is not None:
            return [self.complete(*report) for report in reports]
        outcomes, state, find, finite = [], self._state, self._state.flight.get, math.isfinite
        for ticket, spans, reward, now in reports:
            trajectory = find(ticket)
            if trajectory is None or trajectory.ended >= 0 or not finite(reward):
                outcomes.append(self.complete(ticket, spans, reward, now))
            else:
                outcomes.append(finish(state, trajectory, spans, reward, now))
                state.seq += 1
        return outcomes

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

    def _record(self, kind: str, **data: Any) -> None:
        self._state.seq += 1
        if self._log is not None:
            self._write(kind, **data)

    def _write(self, kind: str, **data: Any) -> None:
        assert self._log is not None
        self._log(Event(self._state.seq - 1, kind, plain(data)))

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
