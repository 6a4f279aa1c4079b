"""Which finished groups make the next batch, and whether the trainer may step at all.

Under policy wait nothing may become stale, so the trainer steps only if what it leaves behind can still be trained in
time. Write left(v) for the batches that could still use version v after the step. The groups left behind are safe iff

    for every version v:  number of groups whose floor is at most v  <=  batch_groups * left(v)

(earliest-deadline-first scheduling of unit jobs). Dispatch keeps this true for what it opens, and floors only rise,
so waiting for the old groups always ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any

from entr_lab.pipeline.config import Order
from entr_lab.pipeline.decisions import WAIT, Batch, Done, DropReason, Reason, Wait
from entr_lab.pipeline.records import NEVER, Group
from entr_lab.pipeline.settle import drop
from entr_lab.pipeline.state import State

__all__ = ["OrderKey", "assemble"]

OrderKey = Callable[[Group], Any]
"""Sort key of a custom order: the smallest is taken first; it must depend on the group alone."""

_floor = attrgetter("floor")


def assemble(state: State, key: OrderKey | None) -> Batch | Wait | Done:
    """Take the next batch out of the finished groups, or say what has to happen first."""
    if state.training is not None:
        if state.reissue:
            return state.training
        return WAIT[Reason.TRAINING]
    chosen = _exact(state) if state.exact else _bounded(state, key)
    if not isinstance(chosen, list):
        return chosen
    for group in chosen:
        state.leave_ready(group)
    batch = Batch(state.steps, state.version, tuple(chosen), len(chosen) < state.config.batch_groups)
    state.training = batch
    state.steps += 1
    return batch


def _bounded(state: State, key: OrderKey | None) -> list[Group] | Wait | Done:
    size = state.config.batch_groups
    if len(state.ready) < size:
        return _too_few(state)
    if state.optimistic:
        return _ordered(state, key, size)
    lowest: dict[int, int] = {}
    missing = size
    for floor in sorted(state.ready_floors):
        lowest[floor] = taken = min(missing, state.ready_floors[floor])
        missing -= taken
    # With nothing open the wait could not end; it comes to that only if a rollout broke the contract of update().
    if state.open and not _safe_without(state, lowest):
        return _unless_stuck(state, Reason.OLD_GROUPS)
    chosen = _ordered(state, key, size)
    if _safe_without(state, Counter(map(_floor, chosen))):
        return chosen
    return sorted(state.ready.values(), key=_floor)[:size]


def _ordered(state: State, key: OrderKey | None, size: int) -> list[Group]:
    ready: Iterable[Group] = state.ready.values()
    order = state.config.order
    if order is Order.OLDEST:
        ready = sorted(ready, key=_floor)
    elif order is Order.FRESHEST:
        ready = sorted(ready, key=_floor, reverse=True)
    elif key is not None:
        ready = sorted(ready, key=key)
    return list(islice(ready, size))


def _safe_without(state: State, taken: Mapping[int, int]) -> bool:
    admission, size = state.config.admission, state.config.batch_groups
    after = state.version + admission.updates_per_batch
    # Plain dictionaries: this is asked whenever a group ends that the trainer may be waiting for.
    floors = dict(state.ready_floors)
    for floor, groups in taken.items():
        floors[floor] -= groups
    # An unfinished rollout ends no earlier than the version that it started under, nor than what the most
    # outdated busy worker has now.
    slowest = min(state.holding, default=NEVER)
    for (first, floor), groups in state.flight_floors.items():
        lowest = min(floor, max(first, slowest))
        floors[lowest] = floors.get(lowest, 0) + groups
    before = 0
    for floor in sorted(floors):
        before += floors[floor]
        if before > size * admission.batches_left(floor, after):
            return False
    return True


def _exact(state: State) -> list[Group] | Wait | Done:
    mine = [group for group in state.ready.values() if group.target == state.version]
    if len(mine) == state.config.batch_groups:
        return mine
    coming = any(group.target == state.version for group in state.open.values())
    if coming or state.prompts_left or not state.exhausted:
        return _generation(state)
    if mine and state.config.train_last_partial:
        return mine
    # Replacements ran out: places of this target stay empty, and no other target may use the later ones' groups.
    return _end(state, [*state.ready.values(), *state.open.values()])


def _too_few(state: State) -> list[Group] | Wait | Done:
    if state.open or state.prompts_left or not state.exhausted:
        return _generation(state)
    rest = list(state.ready.values())
    return rest if rest and state.config.train_last_partial else _end(state, rest)


def _end(state: State, rest: list[Group]) -> Done:
    for group in rest:
        drop(state, group, -1.0, DropReason.END_OF_DATA)
    return Done()


def _generation(state: State) -> Wait:
    if not state.open and not state.prompts_left:
        return WAIT[Reason.NO_PROMPTS]
    return _unless_stuck(state, Reason.GENERATION)


def _unless_stuck(state: State, reason: Reason) -> Wait:
    # Rewards may still be coming in flight; without them and without workers nothing can.
    return WAIT[reason if state.workers or state.flight else Reason.NO_WORKERS]
