"""The virtual clock: order, ties, refusals, stopping."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ProtocolError
from entr_lab.sim.clock import VirtualClock


@given(st.lists(st.integers(0, 5), max_size=40))
def test_events_fire_in_order_of_time_and_ties_in_order_of_scheduling(times: list[int]) -> None:
    clock = VirtualClock()
    fired: list[tuple[float, int]] = []
    for position, time in enumerate(times):
        clock.at(time, fired.append, (float(time), position))
    clock.run()
    assert fired == sorted((float(time), position) for position, time in enumerate(times))
    assert clock.fired == len(times)


def test_a_handler_sees_its_own_time_and_may_schedule_more() -> None:
    clock = VirtualClock()
    seen: list[float] = []

    def tick(left: int) -> None:
        seen.append(clock.now)
        if left:
            clock.after(0.5, tick, left - 1)

    clock.at(1.0, tick, 3)
    clock.run()
    assert seen == [1.0, 1.5, 2.0, 2.5]


def test_stop_leaves_later_events_unfired_and_run_resumes() -> None:
    clock = VirtualClock()
    fired: list[str] = []
    clock.at(1.0, lambda _: (fired.append("a"), clock.stop()))
    clock.at(2.0, fired.append, "b")
    clock.run()
    assert fired == ["a"]
    clock.run()
    assert fired == ["a", "b"]


@pytest.mark.parametrize("time", [-1.0, math.nan])
def test_the_past_and_nan_are_refused(time: float) -> None:
    clock = VirtualClock()
    with pytest.raises(ProtocolError, match="clock shows"):
        clock.at(time, print)


def test_a_reserved_place_counts_among_ties() -> None:
    clock = VirtualClock()
    fired: list[str] = []
    place = clock.reserve()
    clock.at(1.0, fired.append, "scheduled first")
    clock.at(1.0, fired.append, "reserved before", place)
    clock.run()
    assert fired == ["reserved before", "scheduled first"]


def test_a_handler_may_take_its_own_next_events_and_no_others() -> None:
    clock = VirtualClock()
    seen: list[tuple[float, int]] = []

    def tick(number: int | None) -> None:
        while number is not None:
            seen.append((clock.now, number))
            number = clock.take(tick)

    def other(_: object) -> None:
        seen.append((clock.now, -1))

    for time, handler, number in ((1.0, tick, 1), (2.0, tick, 2), (3.0, other, 0), (4.0, tick, 4)):
        clock.at(time, handler, number)
    clock.run()
    assert seen == [(1.0, 1), (2.0, 2), (3.0, -1), (4.0, 4)]
    assert clock.fired == 4
    assert clock.take(tick) is None


def test_a_swap_schedules_and_takes_and_leaves_others_where_they_were() -> None:
    clock = VirtualClock()
    seen: list[tuple[float, str]] = []

    def tick(name: str) -> None:
        seen.append((clock.now, name))
        if name == "a":
            assert clock.swap(5.0, tick, "late") == "b"
            seen.append((clock.now, "b"))
            assert clock.swap(2.5, tick, "soon") == "soon"
            assert clock.now == 2.5
            assert clock.swap(4.0, tick, "after") is None  # somebody else's is next

    def other(name: str) -> None:
        seen.append((clock.now, name))

    for time, handler, name in ((1.0, tick, "a"), (2.0, tick, "b"), (3.0, other, "c")):
        clock.at(time, handler, name)
    assert clock.next_time == 1.0
    clock.run()
    assert seen == [(1.0, "a"), (2.0, "b"), (3.0, "c"), (4.0, "after"), (5.0, "late")]
    assert clock.fired == 6
    assert clock.next_time == math.inf
