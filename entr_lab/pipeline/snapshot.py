"""A pipeline's whole state as plain JSON data, and back, at any moment between two events.

Rollouts in flight, half-finished groups, the buffer, the batch in training, prompts and counters are all in it; the
rollouts' tokens are the driver's to keep, under their tickets. Aborts that were not drained are left out: after a
restore, `Pipeline.running` says what a worker should still run.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import fields
from typing import Any

from entr_lab.errors import DataError, ProtocolError
from entr_lab.pipeline.audit import audit
from entr_lab.pipeline.config import PipelineConfig
from entr_lab.pipeline.decisions import Batch
from entr_lab.pipeline.events import SCHEMA
from entr_lab.pipeline.records import NEVER, Group, Prompt, Trajectory, Worker
from entr_lab.pipeline.state import Counts, State
from entr_lab.pipeline.versions import VersionSpan

__all__ = ["dump", "load"]


def dump(state: State) -> dict[str, Any]:
    """Return the state as plain JSON data that shares nothing with it."""
    batch = state.training
    return {
        "schema": SCHEMA,
        "config": state.config.to_json(),
        "seq": state.seq,
        "version": state.version,
        "steps": state.steps,
        "exhausted": state.exhausted,
        "reissue": state.reissue,
        "next": [state.next_ticket, state.next_group, state.next_target, state.target_fill],
        "free_targets": list(state.free_targets),
        "prompts": [list(prompt) for prompt in state.prompts],
        "requeued": [list(prompt) for prompt in state.requeued],
        "workers": [[w.name, w.version, list(w.held)] for w in state.workers.values()],
        "flight": list(state.flight),
        "open": [_dump_group(group) for group in state.open.values()],
        "waiting": list(dict.fromkeys(group.id for group in state.waiting if group.waiting)),
        "ready": [_dump_group(group) for group in state.ready.values()],
        "training": None
        if batch is None
        else [batch.step, batch.target_version, batch.last, [_dump_group(group) for group in batch.groups]],
        "counts": _dump_counts(state.counts),
    }


def load(data: dict[str, Any]) -> State:
    """Rebuild a state from `dump` data.

    Raises:
        DataError: the data is of another schema, incomplete, or does not add up.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise DataError(f"this is no pipeline snapshot of schema {SCHEMA}; use one that snapshot() wrote.")
    try:
        state = State(PipelineConfig.from_json(data["config"]))
        _fill(state, data)
        audit(state)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ProtocolError) as error:
        raise DataError(f"the pipeline snapshot is damaged ({error}); use an earlier one.") from error
    return state


def _fill(state: State, data: dict[str, Any]) -> None:
    state.seq, state.version, state.steps = data["seq"], data["version"], data["steps"]
    state.exhausted, state.reissue = data["exhausted"], data["reissue"]
    state.next_ticket, state.next_group, state.next_target, state.target_fill = data["next"]
    state.free_targets = list(data["free_targets"])
    state.prompts = deque(Prompt(*prompt) for prompt in data["prompts"])
    state.requeued = deque(Prompt(*prompt) for prompt in data["requeued"])
    state.open = {group.id: group for group in map(_load_group, data["open"])}
    state.ready = {group.id: group for group in map(_load_group, data["ready"])}
    state.waiting = deque(state.open[group] for group in data["waiting"])
    if data["training"] is not None:
        step, target, last, groups = data["training"]
        state.training = Batch(step, target, tuple(map(_load_group, groups)), last)
    counts = dict(data["counts"])
    counts["dropped"], counts["lost"] = Counter(counts["dropped"]), Counter(counts["lost"])
    state.counts = Counts(**counts)
    running = {ticket: t for group in state.open.values() for ticket, t in group.running.items()}
    state.flight = {ticket: running[ticket] for ticket in data["flight"]}
    for name, version, held in data["workers"]:
        state.workers[name] = Worker(name, version, {ticket: running[ticket] for ticket in held})
        if held:
            state.holding[version] = state.holding.get(version, 0) + len(held)
    state.flight_floors = Counter((g.first, g.floor) for g in state.open.values() if g.first != NEVER)
    state.ready_floors = Counter(group.floor for group in state.ready.values())


def _dump_counts(counts: Counts) -> dict[str, Any]:
    plain = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in plain.items()}


def _dump_group(group: Group) -> list[Any]:
    return [
        group.id,
        list(group.prompt),
        group.size,
        group.opened,
        group.target,
        [list(entry) for entry in group.waiting],
        [_dump_trajectory(trajectory) for trajectory in group.running.values()],
        [_dump_trajectory(trajectory) for trajectory in group.done],
        group.lost,
        group.first,
        group.floor,
        group.settled,
        list(group.cut),
    ]


def _load_group(data: list[Any]) -> Group:
    ident, prompt, size, opened, target, waiting, running, done, lost, first, floor, settled, cut = data
    flying = {trajectory.ticket: trajectory for trajectory in map(_load_trajectory, running)}
    return Group(
        ident,
        Prompt(*prompt),
        size,
        opened,
        target,
        [(index, attempt) for index, attempt in waiting],
        flying,
        [_load_trajectory(trajectory) for trajectory in done],
        lost,
        first,
        floor,
        settled,
        list(cut),
    )


def _dump_trajectory(t: Trajectory) -> list[Any]:
    spans = [list(span) for span in t.spans]
    order = [t.ticket, t.group, t.index, t.worker, t.version, t.last_version, t.attempt, t.started]
    return [*order, spans, t.ended, t.reward]


def _load_trajectory(data: list[Any]) -> Trajectory:
    ticket, group, index, worker, version, last, attempt, started, spans, ended, reward = data
    tokens = tuple(VersionSpan(*span) for span in spans)
    return Trajectory(ticket, group, index, worker, version, last, attempt, started, tokens, ended, reward)
