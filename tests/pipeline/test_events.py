"""The log's bytes: whole, cut off at every place, and damaged in every place."""

from __future__ import annotations

import json
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import DataError
from entr_lab.pipeline import Admission, Event
from entr_lab.pipeline.events import FIELDS, SCHEMA, encode, read_log
from tests.pipeline.helpers import finish, make, start, take


def a_run() -> list[Event]:
    log: list[Event] = []
    pipeline = make(Admission.asynchronous(2, 1), prompts=3, log=log.append)
    for rollout in start(pipeline, 2):
        finish(pipeline, rollout)
    take(pipeline)
    pipeline.publish(1, 2.5)
    return log


EVENTS = a_run()
LINES = [encode(event) for event in EVENTS]
WHOLE = b"".join(LINES)


def test_a_whole_log_is_read_back() -> None:
    log = read_log(WHOLE)
    assert log.events == tuple(EVENTS)
    assert (log.unread, log.reason) == (0, "")
    assert all(json.loads(line)["kind"] in FIELDS for line in LINES)


@pytest.mark.parametrize("size", range(0, len(WHOLE), 7))
def test_a_log_cut_anywhere_gives_its_whole_events(size: int) -> None:
    log = read_log(WHOLE[:size])
    whole = b"".join(encode(event) for event in log.events)
    assert WHOLE.startswith(whole)
    assert log.unread == size - len(whole) < max(map(len, LINES))
    assert bool(log.reason) == bool(log.unread)


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_ends_the_reading_before_its_event(position: int, flip: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[position] ^= flip
    log = read_log(bytes(damaged))
    hit, end = 0, len(LINES[0])
    while end <= position:
        hit, end = hit + 1, end + len(LINES[hit + 1])
    assert log.events == tuple(EVENTS[:hit])
    assert log.unread == len(WHOLE) - sum(map(len, LINES[:hit]))
    assert log.reason


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    log = read_log(data)
    assert log.events == ()
    assert log.unread == len(data)


def test_a_missing_or_repeated_line_ends_the_reading() -> None:
    assert len(read_log(b"".join(LINES[:3] + LINES[4:])).events) == 3
    assert len(read_log(b"".join([*LINES[:3], *LINES[2:]])).events) == 3
    assert read_log(b"".join(LINES[1:])).events == ()


@pytest.mark.parametrize(
    "event",
    [
        Event(1, "join", {"worker": "w"}),
        Event(1, "join", {"worker": "w", "version": True}),
        Event(1, "join", {"worker": 3, "version": 0}),
        Event(1, "join", {"worker": "w", "version": 0, "more": 1}),
        Event(1, "_record", {}),
    ],
)
def test_events_outside_the_schema_are_not_read(event: Event) -> None:
    log = read_log(LINES[0] + encode(event))
    assert len(log.events) == 1
    assert log.reason


def test_another_schema_is_refused() -> None:
    with pytest.raises(DataError, match=f"has schema {SCHEMA + 1}"):
        read_log(encode(Event(0, "start", {"schema": SCHEMA + 1, "config": {}})))


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(DataError, match="event 3"):
        encode(Event(3, "expire", {"now": float("nan")}))


def test_encoding_is_deterministic() -> None:
    rng = random.Random(0)
    assert all(encode(event) == line for event, line in rng.sample(list(zip(EVENTS, LINES, strict=True)), 5))


@pytest.mark.parametrize(
    "body", ['{"seq":0}', '{"kind":"start"}', '{"seq":"0","kind":"start"}', '{"seq":1.5,"kind":[]}']
)
def test_a_line_with_a_right_checksum_and_wrong_content_ends_the_reading(body: str) -> None:
    raw = body.encode()
    line = b'{"crc":"%08x",%s\n' % (zlib.crc32(raw), raw[1:])

    log = read_log(line)

    assert log.events == ()
    assert log.unread == len(line)
    assert "damaged" in log.reason
