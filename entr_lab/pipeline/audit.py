"""Does everything add up? The invariants that hold between any two events, checked from scratch."""

from __future__ import annotations

from collections import Counter

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.records import NEVER
from entr_lab.pipeline.state import State

__all__ = ["audit"]


def audit(state: State) -> None:
    """Recount the whole state; costs one step per live rollout.

    Raises:
        ProtocolError: something was lost or counted twice; the message names what.
    """
    counts = state.counts
    batch = state.training.groups if state.training else ()
    groups = [*state.open.values(), *state.ready.values(), *batch]
    _equal("groups", counts.opened, counts.trained + counts.dropped.total() + len(groups))
    _equal("prompts", counts.prompts + counts.requeued, counts.opened + state.prompts_left)
    _equal("rollouts", counts.started, counts.finished + counts.lost.total() + len(state.flight))
    _equal("places of a live group", len(groups), len({group.id for group in groups}))
    for group in groups:
        parts = len(group.done) + group.lost + len(group.running) + len(group.waiting)
        _equal(f"rollouts of group {group.id}", group.size, parts)
        indices = [t.index for t in group.done] + [t.index for t in group.running.values()]
        indices += [index for index, _ in group.waiting]
        _equal(f"distinct rollouts of group {group.id}", len(indices), len(set(indices)))
        floor = min((t.spans[-1][0] for t in (*group.done, *group.running.values()) if t.ended >= 0), default=NEVER)
        _equal(f"floor of group {group.id}", group.floor, floor)
    _equal("tickets in flight", set(state.flight), {t for g in state.open.values() for t in g.running})
    held = [ticket for worker in state.workers.values() for ticket in worker.held]
    _equal("tickets held", sorted(held), sorted(t.ticket for t in state.flight.values() if t.ended < 0))
    waiting = {group.id for group in state.waiting if group.waiting}
    _equal("groups that wait", waiting, {group.id for group in state.open.values() if group.waiting})
    _equal("settled groups", [], [g.id for g in state.ready.values() if g.running or g.waiting])
    _equal(
        "open floors", state.flight_floors, Counter((g.first, g.floor) for g in state.open.values() if g.first < NEVER)
    )
    _equal("ready floors", state.ready_floors, Counter(group.floor for group in state.ready.values()))
    busy = Counter({w.version: 0 for w in state.workers.values()})
    for worker in state.workers.values():
        busy[worker.version] += len(worker.held)
    _equal("held versions", state.holding, +busy)


def _equal(what: str, one: object, other: object) -> None:
    if one != other:
        raise ProtocolError(f"{what} do not add up: {one} against {other}; report this with the event log.")
