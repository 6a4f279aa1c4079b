"""A calculator's language: numbers, + − * /, parentheses. Parsed here, never evaluated as Python.

Arithmetic is exact, on fractions. Length, nesting and the size of every intermediate result are bounded, so that no
expression can take noticeable time or memory.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from typing import Final

__all__ = ["ExpressionError", "evaluate", "format_number", "operators"]

MAX_CHARS: Final = 200
MAX_DEPTH: Final = 32
MAX_BITS: Final = 256
"""Of numerator and denominator of any intermediate result."""

_TOKEN: Final = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([-+*/()]))", re.ASCII)


class ExpressionError(ValueError):
    """The expression is not one, or goes beyond a bound."""


def evaluate(text: str) -> Fraction:
    """Return the exact value.

    Raises:
        ExpressionError: it cannot be read, divides by zero, is too long, too deep or too large.
    """
    parser = _Parser(_tokens(text))
    value = parser.sum(0)
    if parser.peek():
        raise ExpressionError(f"unexpected {parser.peek()!r}")
    return value


def operators(text: str) -> int:
    """Return the number of operators between two operands.

    Raises:
        ExpressionError: the text holds something else than numbers, operators and parentheses.
    """
    pairs = pairwise(["(", *_tokens(text)])
    return sum(token in tuple("+-*/") and before not in tuple("+-*/(") for before, token in pairs)


def format_number(value: Fraction) -> str:
    """Return an integer as such, anything else with up to ten significant digits."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.10g}"


def _tokens(text: str) -> list[str]:
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    tokens, place = [], 0
    text = text.rstrip()
    while place < len(text):
        found = _TOKEN.match(text, place)
        if not found:
            raise ExpressionError(f"cannot read {text[place : place + 8].strip()!r}")
        tokens.append(found.group(1) or found.group(2))
        place = found.end()
    if not tokens:
        raise ExpressionError("empty")
    return tokens


class _Parser:
    """Recursive descent: sum → product → unary → number or parenthesis."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    def peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.peek()
        self._place += 1
        return token

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while self.peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            value = _bounded(value + sign * self._product(depth))
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._unary(depth)
        while self.peek() in ("*", "/"):
            if self._take() == "*":
                value = _bounded(value * self._unary(depth))
                continue
            divisor = self._unary(depth)
            if not divisor:
                raise ExpressionError("division by zero")
            value = _bounded(value / divisor)
        return value

    def _unary(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH}")
        token = self._take()
        if token == "-":
            return -self._unary(depth + 1)
        if token == "(":
            value = self.sum(depth + 1)
            if self._take() != ")":
                raise ExpressionError("a parenthesis is not closed")
            return value
        if not token or not token[0].isdigit():
            raise ExpressionError(f"a number is missing {f'before {token!r}' if token else 'at the end'}")
        return _bounded(Fraction(token))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError("the result is too large")
    return value
