"""The event log: one JSON line per event, append-only, versioned, each line with its own checksum.

A log begins with `start` (the settings) or `resume` (a snapshot, which stands for all events before). Then it has every
event that changed the pipeline, in order, with what the pipeline answered: enough to rebuild every batch
(`replay`). Reading and writing files is left to the driver: here are only bytes.

A log that was cut off or damaged is read up to its last whole event; what follows is never guessed at.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from entr_lab.errors import DataError, check_choice
from entr_lab.pipeline.decisions import Batch, Done, Wait

__all__ = ["FIELDS", "SCHEMA", "Event", "EventLog", "Sink", "encode", "plain", "plain_answer", "read_log"]

SCHEMA = 1
"""Version of the log's and the snapshot's format."""

_NUMBER = (int, float)
_ANSWER = (str, list)
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "start": {"schema": int, "config": dict},
    "resume": {"schema": int, "state": dict},
    "prompts": {"prompts": list},
    "exhaust": {},
    "join": {"worker": str, "version": int},
    "lose": {"worker": str, "now": _NUMBER},
    "update": {"worker": str, "version": int, "now": _NUMBER},
    "dispatch": {"worker": str, "slots": int, "now": _NUMBER, "answer": list},
    "progress": {"ticket": int, "spans": list},
    "complete": {"ticket": int, "spans": list, "reward": _NUMBER, "now": _NUMBER, "answer": str},
    "generated": {"ticket": int, "spans": list, "now": _NUMBER, "answer": str},
    "score": {"ticket": int, "reward": _NUMBER, "now": _NUMBER, "answer": str},
    "fail": {"ticket": int, "now": _NUMBER, "answer": str},
    "expire": {"now": _NUMBER},
    "take": {"answer": _ANSWER},
    "publish": {"version": int, "now": _NUMBER},
    "reissue": {},
    "recover": {"now": _NUMBER},
}
"""Every kind of event and its fields. `answer` is the decision: tickets started, an outcome, or a batch's groups."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its place in the log, its kind (a key of `FIELDS`), its fields."""

    seq: int
    kind: str
    data: dict[str, Any]


Sink = Callable[[Event], None]
"""Receives every event of a pipeline, in order, before the call that caused it returns."""


@dataclass(frozen=True, slots=True)
class EventLog:
    """What could be read of a log.

    Attributes:
        events: all whole events from its beginning.
        unread: bytes left unread behind them; 0 for an undamaged log.
        reason: why reading stopped there, or "".
    """

    events: tuple[Event, ...]
    unread: int
    reason: str


def encode(event: Event) -> bytes:
    """Return the event as one line; `read_log` is the inverse.

    Raises:
        DataError: a field is not plain JSON data (a NaN time, say).
    """
    try:
        body = json.dumps({"seq": event.seq, "kind": event.kind, **event.data}, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"event {event.seq} ({event.kind}) is not JSON data: {error}.") from error
    raw = body.encode()
    return b'{"crc":"%08x",%s\n' % (zlib.crc32(raw), raw[1:])


def read_log(data: bytes) -> EventLog:
    """Read the whole events at the beginning of `data`.

    Raises:
        DataError: the log was written by another version of the format; nothing of it is read.
    """
    events: list[Event] = []
    position, reason = 0, ""
    while position < len(data):
        stop = data.find(b"\n", position)
        if stop < 0:
            reason = "the last line has no end"
            break
        try:
            event = _decode(data[position:stop])
        except (ValueError, RecursionError) as error:
            reason = f"event {len(events)} is damaged: {error}"
            break
        _check_schema(event)
        expected = events[-1].seq + 1 if events else event.seq
        if event.seq != expected or (not events) != (event.kind in ("start", "resume")):
            reason = f"event {event.seq} ({event.kind}) cannot follow here"
            break
        events.append(event)
        position = stop + 1
    return EventLog(tuple(events), len(data) - position, reason)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return an event's fields as JSON data: spans as lists, decisions as what identifies them."""
    if "spans" in data:
        data["spans"] = [list(span) for span in data["spans"]]
    if "answer" in data:
        data["answer"] = plain_answer(data["answer"])
    return data


def plain_answer(answer: object) -> str | list[Any]:
    """Return a decision as JSON data: tickets started, a batch's step and groups, or a name."""
    if isinstance(answer, list):
        return [trajectory.ticket for trajectory in answer]
    if isinstance(answer, Batch):
        return [answer.step, [group.id for group in answer.groups]]
    if isinstance(answer, Wait):
        return str(answer.reason)
    return "done" if isinstance(answer, Done) else str(answer)


def _decode(line: bytes) -> Event:
    head, body = line[:18], b"{" + line[18:]
    if head != b'{"crc":"%08x",' % zlib.crc32(body):
        raise ValueError("its checksum does not match")
    data = json.loads(body)
    seq, kind = data.pop("seq", None), data.pop("kind", None)
    if type(seq) is not int or not isinstance(kind, str):
        raise ValueError(f"its number is {seq!r} and its kind {kind!r}")
    fields = FIELDS[check_choice("kind of event", kind, FIELDS)]
    if set(data) != set(fields):
        raise ValueError(f"{kind} has fields {sorted(data)}, expected {sorted(fields)}")
    for name, kinds in fields.items():
        if not isinstance(data[name], kinds) or isinstance(data[name], bool):
            raise ValueError(f"{kind}.{name} is {data[name]!r}")
    return Event(seq, kind, data)


def _check_schema(event: Event) -> None:
    schema = event.data.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise DataError(
            f"the event log has schema {schema}, this version reads {SCHEMA}; use the version that wrote it."
        )
