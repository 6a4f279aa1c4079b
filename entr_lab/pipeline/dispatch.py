"""Giving rollouts to a worker: unfinished groups first, then new ones while the bound and the limits allow.

Every function works on a `State`; `Pipeline` is the public face.
"""

from __future__ import annotations

import heapq

from entr_lab.pipeline.admission import Mode, Policy
from entr_lab.pipeline.decisions import Reason, Wait
from entr_lab.pipeline.records import NEVER, Group, Trajectory, Worker
from entr_lab.pipeline.state import State

__all__ = ["dispatch", "new_group_block"]


def dispatch(state: State, worker: Worker, slots: int, now: float) -> list[Trajectory] | Wait:
    """Start up to `slots` rollouts on `worker`, or say why none."""
    started: list[Trajectory] = []
    block = _worker_block(state, worker)
    while block is None and len(started) < slots:
        group = _next_waiting(state)
        if group is None:
            block = new_group_block(state, worker.version)
            if block is None:
                _open_group(state, now)
        elif _may_join(state, group, worker):
            while group.waiting and len(started) < slots:
                started.append(_start(state, group, worker, now))
        else:
            block = Wait(Reason.WORKER_VERSION, f"group {group.id} needs newer weights than {worker.version}")
    if started:
        return started
    return block or Wait(Reason.IN_FLIGHT, "no free slots")


def new_group_block(state: State, version: int) -> Wait | None:
    """Return what forbids to open a group under weights `version`, or None.

    The check at dispatch: with the `live` groups consumed first, a new one is used after live // batch_groups more
    batches, and that many must be left for its first token. Policy wait counts on nothing better; where stale
    groups may be dropped, the group is opened as long as it can still make it by living through max_intra updates.
    """
    config, live = state.config, state.live
    if config.max_in_flight is not None and len(state.open) >= config.max_in_flight:
        return Wait(Reason.IN_FLIGHT, f"{len(state.open)} groups are open")
    if config.buffer_groups is not None and live >= config.buffer_groups:
        return Wait(Reason.BUFFER_FULL, f"{live} groups are live")
    admission = config.admission
    if admission.mode is Mode.EXACT:
        target = state.free_targets[0] if state.free_targets else state.next_target
        if target - admission.max_inter > state.version:
            return Wait(Reason.UNPUBLISHED, f"the next group needs version {target - admission.max_inter}")
    else:
        left = admission.batches_left(version, state.target, optimistic=admission.policy is not Policy.WAIT)
        if live >= config.batch_groups * left:
            return Wait(Reason.STALENESS, f"{live} groups are live and {left} batches could use version {version}")
    if not state.prompts_left:
        return Wait(Reason.EXHAUSTED if state.exhausted else Reason.NO_PROMPTS)
    return None


def _worker_block(state: State, worker: Worker) -> Wait | None:
    # A worker that lags by more than max_intra could never update before its new rollout ends.
    admission = state.config.admission
    if admission.mode is not Mode.EXACT and state.version - worker.version > admission.max_intra:
        return Wait(Reason.WORKER_VERSION, f"{worker.name} has {worker.version}, published is {state.version}")
    return None


def _may_join(state: State, group: Group, worker: Worker) -> bool:
    admission = state.config.admission
    if admission.mode is Mode.EXACT:
        return True
    if admission.policy is Policy.WAIT:
        # The room that was checked when the group opened is room for that version, not for an older one.
        return group.first == NEVER or worker.version >= group.first
    return admission.batches_left(worker.version, state.target, optimistic=True) > 0


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
    if config.admission.mode is Mode.EXACT:
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


def _start(state: State, group: Group, worker: Worker, now: float) -> Trajectory:
    index, attempt = group.waiting.pop()
    version, last = worker.version, -1
    if group.target >= 0:
        admission, first = state.config.admission, state.config.first_version
        last = max(first, group.target - admission.max_inter)
        version = max(first, group.target - admission.max_inter - admission.max_intra)
    ticket = state.next_ticket
    state.next_ticket = ticket + 1
    trajectory = Trajectory(ticket, group.id, index, worker.name, version, last, attempt, now)
    state.flight[ticket] = trajectory
    worker.held[ticket] = trajectory
    group.running[ticket] = trajectory
    state.holding[worker.version] += 1
    state.counts.started += 1
    if version < group.first:
        state.move_floor(group, version, group.floor)
    return trajectory
