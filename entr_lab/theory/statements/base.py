"""What a statement is, what a check of it returns, and the two ways of checking most of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from entr_lab.theory.adversary import Position, Ratio, large_positions, search
from entr_lab.theory.certificates import Certificate, certify
from entr_lab.theory.scalars import Array

__all__ = ["ROUNDING", "SHARP", "Finding", "Part", "Search", "Statement", "check_parts", "measured", "ratio_of"]

ROUNDING = 1e-9  # a ratio above 1 + this is a violation, an identity's relative residual above it too
SHARP = 0.999
_SIZES = (4096, 65_536)


class Search(NamedTuple):
    """How hard to look: the seed, climbing rounds, and the clock's limit for one part."""

    seed: int
    rounds: int
    deadline: float


@dataclass(frozen=True, slots=True)
class Part:
    """One inequality of a statement: left/right as a ratio, whether it is sharp, and its number of free scalars."""

    name: str
    ratio: Ratio
    sharp: bool
    scalars: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one part: the worst ratio (or residual), the slack to 1, the instance, and a verdict."""

    part: str
    kind: str  # "inequality", "identity" or "measured"
    worst: float
    slack: float
    holds: bool
    sharp: bool
    tried: int
    note: str = ""
    instance: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the theory, how to check it, and which certificates carry it."""

    id: str
    title: str
    source: str  # "paper", "ours" or "textbook"
    proof: str
    check: Callable[[Search], list[Finding]]
    certificates: tuple[str, ...] = ()

    def certify(self, *, bits: int = 128) -> list[Certificate]:
        """Prove the scalar lemmas behind the statement by ball arithmetic.

        Raises:
            TheoryError: a certificate stayed undecided.
        """
        return [certify(name, bits=bits) for name in self.certificates]


def ratio_of(left: Array, right: Array, floor: float = 0.0) -> Array:
    """left/right, 0 where both are at most `floor` (which absorbs rounding of quantities that should vanish)."""
    left, right = np.broadcast_arrays(left, right)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(left <= floor, 0.0, left / right))


def _readable(ratio: Ratio, instance: Position) -> dict[str, Any]:
    """The instance as lists; a column whose change leaves the ratio alone is left out."""
    with np.errstate(all="ignore"):
        base = ratio(instance)[0]
        matters = {
            "drift": ratio(instance._replace(drift=0.5 * instance.drift))[0] != base,
            "aux": ratio(instance._replace(aux=1.0 - 0.5 * instance.aux))[0] != base,
            "scalars": instance.scalars.size > 0,
        }
    shown = {"mu": np.exp(instance.logp_mu[0])} | {k: getattr(instance, k)[0] for k, used in matters.items() if used}
    return {name: [float(x) for x in column] for name, column in shown.items()}


def check_parts(*parts: Part) -> Callable[[Search], list[Finding]]:
    """A check that sends the adversary against each inequality, then tries structured positions up to V = 65,536."""

    def check(how: Search) -> list[Finding]:
        return [_attack(part, how) for part in parts]

    return check


def _attack(part: Part, how: Search) -> Finding:
    enough = 0.99999 if part.sharp else np.inf
    worst = search(
        part.ratio, scalars=part.scalars, seed=how.seed, rounds=how.rounds, deadline=how.deadline, enough=enough
    )
    ratio, instance, tried, note = worst.ratio, _readable(part.ratio, worst.instance), worst.tried, ""
    rng = np.random.default_rng(how.seed)
    for V in _SIZES:
        with np.errstate(all="ignore"):
            value = part.ratio(large_positions(rng, V, part.scalars))
        tried += len(value)
        if np.nanmax(value) > ratio:
            ratio, instance = float(np.nanmax(value)), {"vocabulary": V, "structured": int(np.nanargmax(value))}
    holds = bool(ratio <= 1.0 + ROUNDING)
    if part.sharp and ratio < SHARP:
        note = "sharp, but the search did not reach equality; raise --budget"
    return Finding(part.name, "inequality", ratio, 1.0 - ratio, holds, part.sharp, tried, note, instance)


def measured(
    part: str, value: float, expected: float, tolerance: float, *, tried: int, note: str = "", kind: str = "measured"
) -> Finding:
    """A finding whose value must lie within `tolerance` of `expected`; the slack is what is left of the tolerance."""
    gap = abs(value - expected)
    return Finding(part, kind, value, tolerance - gap, bool(gap <= tolerance), False, tried, note)
