"""The why-idle account: its parts are the whole, exactly, whatever is marked and held."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ProtocolError
from entr_lab.sim.idle import Account, on_grid

STEPS = st.lists(
    st.tuples(
        st.floats(0, 1000), st.sampled_from(["mark", "hold", "version"]), st.floats(0, 500), st.sampled_from("abc")
    ),
    max_size=60,
)


@given(STEPS, st.floats(0, 1000))
def test_the_seconds_sum_to_the_wall_clock_exactly(steps, tail: float) -> None:
    account = Account("g0", "a", keep_segments=True)
    now = 0.0
    for gap, what, length, state in steps:
        now += gap
        if what == "mark":
            account.mark(now, state)
        elif what == "hold":
            account.hold(now, now + length, "held")
        else:
            account.set_version(now, account.version + 1)
    now += tail
    seconds = account.close(now)
    assert math.fsum(seconds.values()) == on_grid(now)
    assert sum(s.end - s.start for s in account.segments) == on_grid(now)
    assert all(left.end == right.start for left, right in zip(account.segments, account.segments[1:], strict=False))


def test_a_hold_hides_what_is_marked_until_it_ends() -> None:
    account = Account("g0", "idle")
    account.mark(1.0, "busy")
    account.hold(2.0, 5.0, "sync")
    account.mark(3.0, "idle")
    account.mark(4.0, "busy")
    account.mark(7.0, "idle")
    assert account.close(8.0) == {"idle": 2.0, "busy": 3.0, "sync": 3.0}


def test_a_second_hold_extends_the_first_and_keeps_what_follows() -> None:
    account = Account("g0", "busy")
    account.hold(1.0, 3.0, "sync")
    account.hold(2.0, 6.0, "failed")
    assert account.close(10.0) == {"busy": 5.0, "sync": 1.0, "failed": 4.0}


def test_a_run_that_ends_inside_a_hold_counts_only_its_part() -> None:
    account = Account("g0", "busy")
    account.hold(1.0, 9.0, "sync")
    assert account.close(4.0) == {"busy": 1.0, "sync": 3.0}


def test_time_may_not_run_backwards() -> None:
    account = Account("g0", "busy")
    account.mark(5.0, "idle")
    with pytest.raises(ProtocolError, match="order of time"):
        account.mark(4.0, "busy")
