"""Covering a range by boxes whose images are decided in ball arithmetic (Arb, through python-flint).

A ball encloses every value that the exact expression takes on a box, rounding included, so a decided cover is a proof
over the whole range. A box that stays undecided down to the smallest size fails loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from flint import arb, ctx

from entr_lab.errors import TheoryError

__all__ = ["Ball", "Box", "ball", "cover", "precision", "series"]

# python-flint ships no types.
Ball: TypeAlias = Any
Box: TypeAlias = tuple[tuple[float, float], ...]

_MAX_BOXES = 200_000
_MAX_DEPTH = 60


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Set Arb's working precision for a block and restore it."""
    old = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = old


def ball(low: float, high: float) -> Ball:
    """The smallest ball that encloses [low, high]; the ends are binary floats, so they are exact."""
    return arb(low).union(arb(high))


def series(coefficient: Callable[[int], Ball], x: Ball, terms: int, remainder: Ball) -> Ball:
    """Σ_{k<terms} c(k) xᵏ ± remainder, by Horner's rule."""
    total = arb(0)
    for k in range(terms - 1, -1, -1):
        total = total * x + coefficient(k)
    return total + arb(0, 1) * remainder


def cover(name: str, start: Sequence[Box], decide: Callable[[Sequence[Ball]], bool]) -> int:
    """Bisect the boxes, each side in turn, until `decide` holds on each; return how many were decided.

    Raises:
        TheoryError: a box stays undecided at the smallest size, or too many boxes are needed.
    """
    stack = [(box, 0) for box in start]
    decided = 0
    while stack:
        box, depth = stack.pop()
        if decide([ball(*side) for side in box]):
            decided += 1
            continue
        if depth >= _MAX_DEPTH or decided + len(stack) > _MAX_BOXES:
            raise TheoryError(f"certificate {name!r} is undecided on {box} after {decided} boxes; raise the precision.")
        side = depth % len(box)
        low, high = box[side]
        middle = 0.5 * (low + high)
        for part in ((low, middle), (middle, high)):
            stack.append(((*box[:side], part, *box[side + 1 :]), depth + 1))
    return decided
