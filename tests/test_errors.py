"""The exception tree and the checks that every layer uses."""

from __future__ import annotations

import math
import pickle
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab import errors
from entr_lab.errors import (
    ConfigError,
    EntrLabError,
    RangeError,
    UnknownNameError,
    check_choice,
    check_member,
    check_range,
    nearest,
)

CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_belongs_to_the_tree_refines_a_standard_one_and_survives_pickling(kind: type[Exception]) -> None:
    assert issubclass(kind, EntrLabError)
    if kind is not EntrLabError:
        assert issubclass(kind, ValueError | RuntimeError | ArithmeticError)
    copy = pickle.loads(pickle.dumps(kind("what, bound, value, next step")))
    assert type(copy) is kind
    assert str(copy) == "what, bound, value, next step"


def test_the_tree_is_as_drawn() -> None:
    assert issubclass(UnknownNameError, ConfigError)
    assert issubclass(RangeError, ConfigError)
    assert errors.__doc__ is not None
    for kind in CLASSES:
        assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize(
    ("name", "expected"),
    [("entrr", "entr"), ("ENTR", "entr"), ("Ice-Pop", "icepop"), ("m2p", "m2po"), ("zzzz", None), ("", None)],
)
def test_nearest(name: str, expected: str | None) -> None:
    assert nearest(name, ["m2po", "entr", "icepop"]) == expected


def test_a_choice_is_returned_and_a_miss_lists_the_choices() -> None:
    assert check_choice("rule", "entr", ["entr", "m2po"]) == "entr"
    with pytest.raises(UnknownNameError) as caught:
        check_choice("rule", "entrr", ["m2po", "entr"])
    assert str(caught.value) == "unknown rule 'entrr'; did you mean 'entr'? Known: entr, m2po."
    with pytest.raises(UnknownNameError) as caught:
        check_choice("rule", "zzzz", ["m2po", "entr"])
    assert str(caught.value) == "unknown rule 'zzzz'; none is like it. Known: entr, m2po."


@given(st.floats(allow_nan=False), st.floats(allow_nan=False), st.booleans(), st.booleans())
def test_a_range_holds_exactly_what_lies_inside(value: float, bound: float, low_open: bool, high_open: bool) -> None:
    above = value > bound or (value == bound and not low_open)
    below = value < bound or (value == bound and not high_open)
    for inside, limits in (
        (above, {"low": bound, "low_open": low_open}),
        (below, {"high": bound, "high_open": high_open}),
    ):
        if inside:
            assert check_range("x", value, **limits) == value
        else:
            with pytest.raises(RangeError):
                check_range("x", value, **limits)


@pytest.mark.parametrize("value", [math.nan, "1.0", None, True, [1.0], 1j])
def test_what_is_not_a_number_is_never_inside(value: object) -> None:
    with pytest.raises(RangeError, match=r"x must lie in \[-inf, inf\], got "):
        check_range("x", value)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1, 1.5, np.float32(1.5), np.int64(1)])
def test_numbers_of_other_libraries_are_numbers(value: float) -> None:
    assert check_range("x", value, low=0.0, high=2.0) == value


def test_the_message_names_the_thing_the_interval_the_value_and_the_next_step() -> None:
    with pytest.raises(RangeError) as caught:
        check_range("tau", -1.0, low=0.0, low_open=True)
    assert str(caught.value) == "tau must lie in (0, inf], got -1.0; choose a value inside."
    with pytest.raises(RangeError, match=r"must lie in \[0, 1\), got 1"):
        check_range("share", 1, low=0.0, high=1.0, high_open=True)


def test_a_member_is_taken_as_itself_or_by_name() -> None:
    class Fruit(StrEnum):
        APPLE = "apple"
        PEAR = "pear"

    assert check_member("fruit", Fruit.PEAR, Fruit) is Fruit.PEAR
    assert check_member("fruit", "pear", Fruit) is Fruit.PEAR
    with pytest.raises(UnknownNameError, match="unknown fruit 'peer'; did you mean 'pear'"):
        check_member("fruit", "peer", Fruit)
