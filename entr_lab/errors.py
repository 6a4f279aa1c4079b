"""The exception tree, and the few checks that every layer needs.

    EntrLabError
    ├── ConfigError (ValueError)         an option, field or file of the user's is wrong
    │   ├── UnknownNameError             a name is not in its registry; suggests the nearest
    │   └── RangeError                   a number is outside its bound
    ├── ShapeError (ValueError)          tensors disagree in shape or dtype
    ├── DataError (ValueError)           a file or record of the user's cannot be trusted
    ├── ProtocolError (RuntimeError)     the asynchronous protocol was driven in a forbidden order
    ├── TheoryError (ArithmeticError)    a statement is violated, or a certificate is undecided
    └── EngineError (RuntimeError)       a generator, trainer or transfer failed

Every message names the thing, the bound, the value and the next step. Every class survives pickling, since
errors cross processes.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from enum import StrEnum
from numbers import Real
from typing import TypeVar

__all__ = [
    "ConfigError",
    "DataError",
    "EngineError",
    "EntrLabError",
    "ProtocolError",
    "RangeError",
    "ShapeError",
    "TheoryError",
    "UnknownNameError",
    "check_choice",
    "check_member",
    "check_range",
    "nearest",
]


_Member = TypeVar("_Member", bound=StrEnum)


class EntrLabError(Exception):
    """Root of every error that this package raises on purpose."""


class ConfigError(EntrLabError, ValueError):
    """An option, a field or a file that the user wrote is wrong."""


class UnknownNameError(ConfigError):
    """A name is not in its registry."""


class RangeError(ConfigError):
    """A number is outside its bound, or not a number."""


class ShapeError(EntrLabError, ValueError):
    """Tensors disagree in shape or dtype."""


class DataError(EntrLabError, ValueError):
    """A file or a record cannot be trusted."""


class ProtocolError(EntrLabError, RuntimeError):
    """The asynchronous protocol was driven in an order that it forbids."""


class TheoryError(EntrLabError, ArithmeticError):
    """A statement is violated beyond rounding, or a certificate stayed undecided."""


class EngineError(EntrLabError, RuntimeError):
    """A generator, a trainer or a weight transfer failed."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice most like `name`, whatever its case, or None if nothing is close."""
    names = {choice.casefold(): choice for choice in sorted(choices)}
    found = difflib.get_close_matches(name.casefold(), names, n=1, cutoff=0.5)
    return names[found[0]] if found else None


def check_choice(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return `name` if it is one of `choices`.

    Raises:
        UnknownNameError: it is not; the message lists the choices and suggests the nearest.
    """
    names = sorted(choices)
    if name in names:
        return name
    guess = nearest(name, names)
    hint = f"did you mean {guess!r}?" if guess else "none is like it."
    raise UnknownNameError(f"unknown {kind} {name!r}; {hint} Known: {', '.join(names)}.")


def check_member(kind: str, value: str, members: type[_Member]) -> _Member:
    """Return the member of a string enumeration that `value` is or names.

    Raises:
        UnknownNameError: see `check_choice`.
    """
    return members(check_choice(kind, str(value), [member.value for member in members]))


def check_range(
    name: str,
    value: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """Return `value` if it is a number inside the interval.

    Infinite ends are allowed as bounds and, where not open, as values; NaN, text and booleans never are.

    Raises:
        RangeError: it is not; the message gives name, interval and value.
    """
    number = isinstance(value, Real) and not isinstance(value, bool)
    if number and (value > low if low_open else value >= low) and (value < high if high_open else value <= high):
        return value
    interval = f"{'(' if low_open else '['}{low:g}, {high:g}{')' if high_open else ']'}"
    raise RangeError(f"{name} must lie in {interval}, got {value!r}; choose a value inside.")
