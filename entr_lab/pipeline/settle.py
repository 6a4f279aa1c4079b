"""What becomes of rollouts and groups: finished, lost, restarted, complete, dropped.

Every function works on a `State`; `Pipeline` is the public face.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.admission import Policy
from entr_lab.pipeline.decisions import DropReason, LossReason, Outcome
from entr_lab.pipeline.records import NEVER, Group, Trajectory, Worker
from entr_lab.pipeline.state import State
from entr_lab.pipeline.versions import VersionSpan, check_spans

__all__ = [
    "check_versions",
    "drop",
    "drop_stale",
    "end",
    "expire",
    "finish",
    "give_up",
    "lose_worker",
    "recover",
    "score",
]

_OPEN = Outcome.OPEN
_REQUEUED = frozenset({DropReason.STALE, DropReason.STRAGGLER, DropReason.TOO_FEW})


def check_versions(state: State, trajectory: Trajectory, spans: Sequence[VersionSpan]) -> None:
    """Check that reported spans can be true: no version before the rollout's start or after its worker's weights.

    Raises:
        ProtocolError: they cannot; the message names the version and the range.
    """
    check_spans(spans)
    low, high = trajectory.version, state.workers[trajectory.worker].version
    if trajectory.last_version >= 0:
        high = trajectory.last_version
        if spans[0][0] != low:
            raise ProtocolError(
                f"ticket {trajectory.ticket} must start under {low}, got {spans[0][0]}; check the plan."
            )
    if spans[0][0] < low or spans[-1][0] > high:
        raise ProtocolError(
            f"ticket {trajectory.ticket} reports versions {spans[0][0]}…{spans[-1][0]}, but it can only have {low}…"
            f"{high}; report update() when a worker loads weights."
        )


def end(state: State, trajectory: Trajectory, spans: Sequence[VersionSpan], now: float) -> Outcome | None:
    """Fix a rollout's tokens and take it off its worker; return what became of it where it broke max_intra."""
    state.leave_worker(trajectory)
    trajectory.spans, trajectory.ended = tuple(spans), now
    last = spans[-1][0]
    if last - spans[0][0] > state.max_intra:
        return give_up(state, trajectory, LossReason.INTRA, now)
    group = state.open[trajectory.group]
    if last < group.floor:
        state.move_floor(group, group.first, last)
    return None


def score(state: State, trajectory: Trajectory, reward: float, now: float) -> Outcome:
    """Count a rollout as finished, and complete or drop its group if that was the last one missing."""
    group, ticket = state.open[trajectory.group], trajectory.ticket
    del state.flight[ticket], group.running[ticket]
    trajectory.reward = reward
    group.done.append(trajectory)
    state.counts.finished += 1
    if len(group.done) + group.lost < group.size:
        return _OPEN
    return _settle(state, group, now, DropReason.TOO_FEW)


def finish(state: State, trajectory: Trajectory, spans: Sequence[VersionSpan], reward: float, now: float) -> Outcome:
    """`check_versions`, `end` and `score` in one pass: a simulation comes here millions of times."""
    worker = state.workers[trajectory.worker]
    stopped, last = 0, trajectory.version
    for version, start, stop in spans:
        if start < stopped or stop <= start or version < last:
            last = NEVER
            break
        stopped, last = stop, version
    if not stopped or last > worker.version or last - spans[0][0] > state.max_intra or state.exact:
        check_versions(state, trajectory, spans)
        return end(state, trajectory, spans, now) or score(state, trajectory, reward, now)
    ticket, group = trajectory.ticket, state.open[trajectory.group]
    del worker.held[ticket], state.flight[ticket], group.running[ticket]
    holding, version = state.holding, worker.version
    if holding[version] > 1:
        holding[version] -= 1
    else:
        del holding[version]
    trajectory.spans, trajectory.ended, trajectory.reward = tuple(spans), now, reward
    if last < group.floor:
        state.move_floor(group, group.first, last)
    done = group.done
    done.append(trajectory)
    state.counts.finished += 1
    if len(done) + group.lost < group.size:
        return _OPEN
    return _settle(state, group, now, DropReason.TOO_FEW)


def give_up(state: State, trajectory: Trajectory, reason: LossReason, now: float) -> Outcome:
    """Lose one start of a rollout: start it again where that is allowed, else count its group one short."""
    config, group = state.config, state.open[trajectory.group]
    state.lose(trajectory, reason)
    for_staleness = reason is LossReason.INTRA or reason is LossReason.STALE
    again = config.admission.policy is Policy.REQUEUE or not for_staleness
    if again and trajectory.attempt < config.max_attempts:
        _restart(state, group, trajectory, trajectory.attempt + 1)
        return Outcome.RESTARTED
    _lose_for_good(group, trajectory)
    return _settle(state, group, now, DropReason.STALE if for_staleness else DropReason.TOO_FEW)


def _restart(state: State, group: Group, trajectory: Trajectory, attempt: int) -> None:
    """Put a rollout back in its group's queue; the group goes before all that were not started yet."""
    if not group.waiting:
        state.waiting.appendleft(group)
    group.waiting.append((trajectory.index, attempt))


def lose_worker(state: State, worker: Worker, now: float) -> None:
    """Forget a worker; what it held is started again elsewhere."""
    for trajectory in list(worker.held.values()):
        if trajectory.ticket in state.flight:
            give_up(state, trajectory, LossReason.WORKER_LOST, now)
    del state.workers[worker.name]


def recover(state: State, now: float) -> None:
    """Begin again after the driver died: no worker is left, all that was running is started anew."""
    for trajectory in list(state.flight.values()):
        state.lose(trajectory, LossReason.WORKER_LOST)
        _restart(state, state.open[trajectory.group], trajectory, trajectory.attempt)
    state.workers.clear()
    for group in state.open.values():
        group.opened = now
    state.reissue = state.training is not None


def expire(state: State, now: float) -> None:
    """Settle open groups past the deadline with what they have."""
    limit = state.config.deadline
    if limit is None:
        return
    # Groups are kept in the order of opening, so the first one in time ends the search.
    late = []
    for group in state.open.values():
        if group.opened + limit > now:
            break
        late.append(group)
    for group in late:
        if len(group.done) >= state.needed:
            _cut_short(state, group)
            _settle(state, group, now, DropReason.STRAGGLER)
        else:
            drop(state, group, now, DropReason.STRAGGLER)


def drop_stale(state: State, now: float) -> None:
    """Give up what no batch from the present target on may use: finished groups, open groups, running rollouts."""
    admission, target = state.config.admission, state.target
    if state.exact:
        return
    oldest = admission.oldest_usable(target)
    for group in [group for groups in (state.ready, state.open) for group in groups.values() if group.floor < oldest]:
        drop(state, group, now, DropReason.STALE)
    oldest = admission.oldest_usable(target, optimistic=True)
    for trajectory in [trajectory for trajectory in state.flight.values() if trajectory.version < oldest]:
        if trajectory.first_version < oldest and trajectory.ticket in state.flight:
            give_up(state, trajectory, LossReason.STALE, now)


def drop(state: State, group: Group, now: float, reason: DropReason) -> None:
    """Give a group up: stop what runs, and put its prompt back where policy and reason say so."""
    config = state.config
    if group.id in state.ready:
        state.leave_ready(group)
    else:
        _cut_short(state, group)
        state.leave_open(group)
        group.settled = now
    state.counts.dropped[reason] += 1
    if group.target >= 0:
        heapq.heappush(state.free_targets, group.target)
    requeue = config.admission.policy is Policy.REQUEUE and reason in _REQUEUED
    if requeue and group.prompt.attempt < config.max_attempts:
        state.requeued.append(group.prompt._replace(attempt=group.prompt.attempt + 1))
        state.counts.requeued += 1
    if state.closed is not None:
        state.closed(group, reason)


def _cut_short(state: State, group: Group) -> None:
    for trajectory in list(group.running.values()):
        state.lose(trajectory, LossReason.GROUP_CLOSED)
        _lose_for_good(group, trajectory)
    group.lost += len(group.waiting)
    group.waiting.clear()


def _lose_for_good(group: Group, trajectory: Trajectory) -> None:
    group.lost += 1
    if trajectory.spans:
        group.cut.append(trajectory.tokens)


def _settle(state: State, group: Group, now: float, reason: DropReason) -> Outcome:
    if group.size - group.lost < state.needed:
        drop(state, group, now, reason)
        return Outcome.DROPPED
    if len(group.done) + group.lost < group.size:
        return Outcome.OPEN
    if state.config.drop_zero_variance and len({t.reward for t in group.done}) == 1:
        drop(state, group, now, DropReason.ZERO_VARIANCE)
        return Outcome.DROPPED
    if not state.exact and not state.config.admission.batches_left(group.floor, state.target):
        drop(state, group, now, DropReason.STALE)
        return Outcome.DROPPED
    group.settled = now
    state.leave_open(group)
    state.enter_ready(group)
    return Outcome.READY
