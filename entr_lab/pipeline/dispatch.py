"""Giving rollouts to a worker: unfinished groups first, then new ones while the bound and the limits allow.

Every function works on a `State`; `Pipeline` is the public face.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from entr_lab.pipeline.decisions import WAIT, Reason, Wait
from entr_lab.pipeline.records import NEVER, Group, Trajectory, Worker
from entr_lab.pipeline.state import State

__all__ = ["dispatch", "dispatch_each", "new_group_block", "nothing_to_start"]


def dispatch(state: State, worker: Worker, slots: int, now: float) -> list[Trajectory] | Wait:
    """Start up to `slots` rollouts on `worker`, or say why none."""
    # A worker that lags by more than max_intra could never update before its new rollout ends.
    if not state.exact and state.version - worker.version > state.max_intra:
        return WAIT[Reason.WORKER_VERSION]
    started: list[Trajectory] = []
    while len(started) < slots:
        group = _next_waiting(state)
        if group is None:
            block = new_group_block(state, worker.version)
            if block is not None:
                return started or WAIT[block]
            _open_group(state, now)
        elif _may_join(state, group, worker):
            _start(state, group, worker, slots - len(started), now, started)
        else:
            return started or WAIT[Reason.WORKER_VERSION]
    return started or WAIT[Reason.NO_SLOTS]


def dispatch_each(state: State, workers: Sequence[Worker], now: float) -> list[Trajectory]:
    """Start one rollout on each of `workers`, in order, until one may not start; the same as `dispatch` one by one.

    What was found out for one rollout holds for the next of its group on a worker with the same weights.
    """
    started: list[Trajectory] = []
    position = 0
    while position < len(workers):
        first = dispatch(state, workers[position], 1, now)
        if isinstance(first, Wait):
            break
        started += first
        position += 1
        if not state.exact:
            _follow(state, state.open[first[0].group], workers[position - 1].version, workers, now, started)
            position = len(started)
    return started


def _follow(
    state: State, group: Group, version: int, workers: Sequence[Worker], now: float, started: list[Trajectory]
) -> None:
    """Start the group's other rollouts on those of `workers` that come next and have weights `version`."""
    ticket = first_ticket = state.next_ticket
    name, waiting, running, flight = group.id, group.waiting, group.running, state.flight
    for worker in workers[len(started) : len(started) + len(waiting)]:
        if worker.version != version:
            break
        index, attempt = waiting.pop()
        trajectory = Trajectory(ticket, name, index, worker.name, version, -1, attempt, now)
        flight[ticket] = running[ticket] = worker.held[ticket] = trajectory
        started.append(trajectory)
        ticket += 1
    state.next_ticket = ticket
    state.counts.started += ticket - first_ticket
    state.holding[version] += ticket - first_ticket


def nothing_to_start(state: State) -> Reason | None:
    """Return why no worker would be given a rollout, whatever its weights, or None if one might."""
    return new_group_block(state, state.version) if _next_waiting(state) is None else None


def new_group_block(state: State, version: int) -> Reason | None:
    """Return what forbids to open a group under weights `version`, or None.

    The check at dispatch: with the `live` groups consumed first, a new one is used after live // batch_groups more
    batches, and that many must be left for its first token. Policy wait counts on nothing better; where stale
    groups may be dropped, the group is opened as long as it can still make it by living through max_intra updates.
    """
    config, live = state.config, len(state.open) + len(state.ready)
    if config.max_in_flight is not None and len(state.open) >= config.max_in_flight:
        return Reason.IN_FLIGHT
    if config.buffer_groups is not None and live >= config.buffer_groups:
        return Reason.BUFFER_FULL
    admission = config.admission
    if state.exact:
        target = state.free_targets[0] if state.free_targets else state.next_target
        if target - admission.max_inter > state.version:
            return Reason.UNPUBLISHED
    else:
        left = admission.batches_left(version, state.target, optimistic=state.optimistic)
        if live >= config.batch_groups * left:
            return Reason.STALENESS
    if not state.prompts and not state.requeued:
        return Reason.EXHAUSTED if state.exhausted else Reason.NO_PROMPTS
    return None


def _may_join(state: State, group: Group, worker: Worker) -> bool:
    if state.exact:
        return True
    if not state.optimistic:
        # The room that was checked when the group opened is room for that version, not for an older one.
        return group.first == NEVER or worker.version >= group.first
    return state.config.admission.batches_left(worker.version, state.target, optimistic=True) > 0


def _next_waiting(state: State) -> Group | None:
    while state.waiting:
        group = state.waiting[0]
        if group.waiting:
            return group
        state.waiting.popleft()
    return None


def _open_group(state: State, now: float) -> None:
    config = state.config
    prompt = state.requeued.popleft() if state.requeued else state.prompts.popleft()
    group = Group(state.next_group, prompt, config.group_size, now)
    group.waiting = [(index, 1) for index in range(config.group_size - 1, -1, -1)]
    if state.exact:
        group.target = _claim_target(state)
    state.next_group += 1
    state.open[group.id] = group
    state.waiting.append(group)
    state.counts.opened += 1


def _claim_target(state: State) -> int:
    if state.free_targets:
        return heapq.heappop(state.free_targets)
    # The groups opened so far, less those whose place was given away again, fill the targets in turn.
    target = state.next_target
    state.target_fill += 1
    if state.target_fill == state.config.batch_groups:
        state.next_target, state.target_fill = target + 1, 0
    return target


def _start(state: State, group: Group, worker: Worker, slots: int, now: float, started: list[Trajectory]) -> None:
    """Start up to `slots` of the group's waiting rollouts on `worker`, appending them to `started`."""
    version, last, name = worker.version, -1, worker.name
    if state.exact:
        admission, earliest = state.config.admission, state.config.first_version
        last = max(earliest, group.target - admission.max_inter)
        version = max(earliest, last - admission.max_intra)
    ticket = first_ticket = state.next_ticket
    waiting, running, flight, held = group.waiting, group.running, state.flight, worker.held
    while waiting and ticket - first_ticket < slots:
        index, attempt = waiting.pop()
        trajectory = Trajectory(ticket, group.id, index, name, version, last, attempt, now)
        flight[ticket] = running[ticket] = held[ticket] = trajectory
        started.append(trajectory)
        ticket += 1
    state.next_ticket = ticket
    state.counts.started += ticket - first_ticket
    state.holding[worker.version] = state.holding.get(worker.version, 0) + ticket - first_ticket
    if version < group.first:
        state.move_floor(group, version, group.floor)
