"""Certificates of the scalar lemmas, by ball arithmetic over their whole range (statements A2, B2–B4, C2).

Each certificate covers its compact range by decided boxes, and settles by an argument of one line what a finite cover
cannot reach: the points of equality (divided out analytically, the quotient is then covered) and the infinite ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import arb, ctx

from entr_lab.errors import TheoryError, check_choice, check_range
from entr_lab.theory.balls import Ball, cover, precision, series
from entr_lab.theory.envelope import variance_envelope

__all__ = ["CERTIFICATES", "Certificate", "certify"]

_TOP = 710.0  # e⁷¹⁰ leaves float64
_TERMS = 30
# Octaves up to 710: a box then has a bounded ratio of its ends.
_OCTAVES = [(0.0, 2.0), *((2.0**k, min(2.0 ** (k + 1), _TOP)) for k in range(1, 10))]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was proved, over which range, at which precision, with how many boxes, and how the ends were treated."""

    name: str
    claim: str
    range: str
    bits: int
    boxes: int
    ends: str


@cache
def _phi_coefficients(order: int, bits: int) -> list[Ball]:
    """Taylor coefficients of the order-th derivative of φ: (k+1)…(k+order)/(k+order+2)!, at the current precision."""
    return [arb(k + order).fac() / (arb(k).fac() * arb(k + order + 2).fac()) for k in range(_TERMS + 1)]


def _phi_derivative(x: Ball, order: int) -> Ball:
    """φ, φ′ or φ″ on a ball: power series inside [−4, 4], closed form on a ball that excludes 0, else undecided."""
    if abs(x) <= 4:
        coefficients = _phi_coefficients(order, ctx.prec)
        # The terms fall by more than half each from here on, so the tail is below twice its first term.
        return series(coefficients.__getitem__, x, _TERMS, 2 * coefficients[_TERMS] * arb(4) ** _TERMS)
    if x.contains(0):
        return arb("nan")
    e = x.exp()
    if order == 0:
        return (e - 1 - x) / x**2
    if order == 1:
        return (e * (x - 2) + x + 2) / x**3
    return (e * ((x - 2) ** 2 + 2) - 2 * x - 6) / x**4


def _phi_increasing(bits: int) -> Certificate:
    boxes = 0
    for order in (1, 2):

        def positive(box: Sequence[Ball], order: int = order) -> bool:
            return bool(_phi_derivative(box[0], order) > 0)

        boxes += cover("phi_increasing", [((-_TOP, 0.0),), ((0.0, _TOP),)], positive)
    return Certificate(
        "phi_increasing",
        "φ′ > 0 and φ″ > 0",
        "x ∈ ℝ",
        bits,
        boxes,
        "x = 0 by series; beyond ±710 every term of x³φ′ = eˣ(x−2) + x + 2 and of x⁴φ″ has the sign of the sum",
    )


def _phi_bracket(bits: int) -> Certificate:
    def ordered(high: Ball, low: Ball) -> bool:
        """φ(high) − φ(low) ≥ 0, from φ′ > 0 on the hull of the two, or from their values where the hull is wide."""
        if _phi_derivative(high.union(low), 1) > 0:
            return True
        return bool(_phi_derivative(high, 0) - _phi_derivative(low, 0) > 0)

    def decide(box: Sequence[Ball]) -> bool:
        M, s = box
        return ordered(M, s * M) and ordered(s * M, -M)

    boxes = cover("phi_bracket", [(M, (-1.0, 1.0)) for M in _OCTAVES], decide)
    return Certificate(
        "phi_bracket",
        "φ(−M) ≤ g(x)/x² ≤ φ(M) for |x| ≤ M",
        "M ∈ [0, 710], x = sM, s ∈ [−1, 1]",
        bits,
        boxes,
        "s = ±1 and M = 0 (equality) by φ′ > 0 on the hull of x and ±M",
    )


def _entropy_quadratic(bits: int) -> Certificate:
    ln2 = arb(2).log()

    def middle(box: Sequence[Ball]) -> bool:
        q = box[0]
        return bool(-q * q.log() - (1 - q) * (1 - q).log() - 4 * ln2 * q * (1 - q) > 0)

    def near_half(box: Sequence[Ball]) -> bool:
        t = box[0]

        def coefficient(k: int) -> Ball:
            return ln2 - arb(1) / 2 if k == 0 else -arb(1) / ((2 * k + 2) * (2 * k + 1))

        return bool(series(coefficient, t * t, _TERMS, arb(1) / arb(2) ** (4 * _TERMS)) > 0)

    boxes = cover("entropy_quadratic", [((1 / 16, 3 / 8),)], middle)
    boxes += cover("entropy_quadratic", [((0.0, 0.25),)], near_half)
    edge = -(arb(1) / 16).log() - 4 * ln2 * 15 / 16
    if not edge > 0:
        raise TheoryError("certificate 'entropy_quadratic' is undecided at q = 1/16; raise the precision.")
    return Certificate(
        "entropy_quadratic",
        "q(1−q) ≤ h_b(q)/(4 ln 2)",
        "q ∈ [0, 1]",
        bits,
        boxes + 1,
        "q < 1/16: −log q − 4 ln 2 (1−q) decreases and is > 0 at 1/16; q ≥ 3/8: quotient by (1−2q)²; q > ½ by symmetry",
    )


def _envelope_convex(bits: int) -> Certificate:
    """v′ = t/(2 artanh t) decreases in t = 1 − 2q, that is (1−t²) artanh t < t; H falls as t rises."""

    def near_zero(box: Sequence[Ball]) -> bool:
        t = box[0]

        def coefficient(k: int) -> Ball:
            return arb(2 * k + 2) / (2 * k + 3)

        # (t/(1−t²) − artanh t)/t³ = Σ (2k+2)/(2k+3) t²ᵏ
        return bool(series(coefficient, t * t, _TERMS, arb(2) / arb(2) ** (2 * _TERMS)) > 0)

    def middle(box: Sequence[Ball]) -> bool:
        t = box[0]
        return bool(t - (1 - t * t) * t.atanh() > 0)

    corner = 2.0**-20
    boxes = cover("envelope_convex", [((0.0, 0.5),)], near_zero)
    boxes += cover("envelope_convex", [((0.5, 1.0 - corner),)], middle)
    u = arb(corner)
    if not u * (2 / u).log() < 1 - u:
        raise TheoryError("certificate 'envelope_convex' is undecided at t → 1; raise the precision.")
    return Certificate(
        "envelope_convex",
        "v increases from 0 to ¼ and is convex on [0, ln 2], so v(H) ≤ H/(4 ln 2)",
        "H ∈ [0, ln 2], t = 1 − 2h_b⁻¹(H) ∈ [0, 1]",
        bits,
        boxes + 1,
        "t = 0 by the quotient with t³; t → 1: (1−t²) artanh t ≤ u log(2/u), u = 1−t, increasing and < t at u = 2⁻²⁰",
    )


def _envelope_inverse(bits: int) -> Certificate:
    """The float64 v(H) is within 1e-13 of the exact one: h_b at the two neighbours brackets H."""
    points = np.concatenate([10.0 ** -np.arange(1.0, 301.0), np.linspace(0.01, 0.6931, 200)])

    def entropy_at(v: Ball) -> Ball:
        # q = v·2/(1 + √(1−4v)) does not cancel for small v.
        q = 2 * v / (1 + (1 - 4 * v).sqrt())
        return -q * q.log() - (1 - q) * (-q).log1p()

    width = arb(1) / arb(10) ** 13
    for H, v in zip(points, variance_envelope(points), strict=True):
        if not entropy_at(arb(float(v)) * (1 - width)) < arb(float(H)) < entropy_at(arb(float(v)) * (1 + width)):
            raise TheoryError(f"certificate 'envelope_inverse' fails at H = {H!r}: v = {v!r}; check the solver.")
    return Certificate(
        "envelope_inverse",
        "the float64 v(H) is exact to 1e-13",
        "H = 1e-300 … 0.6931, at points",
        bits,
        len(points),
        "h_b is strictly increasing on [0, ½], so the two signs bracket the exact value; H = 0 and H ≥ ln 2 are exact",
    )


def _bennett(bits: int) -> Certificate:
    """[φ(R) − (1−p)φ((1−p)R) − pφ(−pR)]/(pR) ≥ (1−p)φ′(0) + (1+p)φ′(−pR) > 0, because φ′ increases; φ′(0) = 1/6."""

    def decide(box: Sequence[Ball]) -> bool:
        p, R = box
        return bool((1 - p) / 6 + (1 + p) * _phi_derivative(-p * R, 1) > 0)

    boxes = cover("bennett", [((0.0, 1.0), R) for R in _OCTAVES], decide)
    return Certificate(
        "bennett",
        "κ(p, R) ≤ log(1 + φ(R) R² p(1−p))",
        "p ∈ [0, 1], R ∈ [0, 710]",
        bits,
        boxes,
        "p = 0 and R = 0 (equality) by the quotient with pR; φ′ increasing is certificate phi_increasing",
    )


def _amplification(bits: int) -> Certificate:
    def near_zero(box: Sequence[Ball]) -> bool:
        return bool(series(lambda k: arb(1) / (k + 2), box[0], 2 * _TERMS, arb(2) / arb(2) ** (2 * _TERMS)) > 0)

    def middle(box: Sequence[Ball]) -> bool:
        u = box[0]
        return bool(-(-u).log1p() - u > 0)

    boxes = cover("amplification", [((0.0, 0.5),)], near_zero)
    boxes += cover("amplification", [((0.5, 1.0 - 2.0**-30),)], middle)
    return Certificate(
        "amplification",
        "log(1 + x) ≥ x/(1 + x)",
        "x ∈ [0, ∞), u = x/(1+x) ∈ [0, 1)",
        bits,
        boxes,
        "u = 0 by the quotient with u²; beyond u = 1 − 2⁻³⁰ the left side exceeds 20 and the right is below 1",
    )


CERTIFICATES: dict[str, Callable[[int], Certificate]] = {
    "amplification": _amplification,
    "bennett": _bennett,
    "entropy_quadratic": _entropy_quadratic,
    "envelope_convex": _envelope_convex,
    "envelope_inverse": _envelope_inverse,
    "phi_bracket": _phi_bracket,
    "phi_increasing": _phi_increasing,
}


def certify(name: str, *, bits: int = 128) -> Certificate:
    """Prove a scalar lemma by ball arithmetic at a working precision of `bits`.

    Raises:
        UnknownNameError: no such lemma.
        RangeError: fewer than 24 bits.
        TheoryError: a box stayed undecided; nothing is claimed then.
    """
    check_choice("certificate", name, CERTIFICATES)
    check_range("bits", bits, low=24)
    with precision(bits):
        return CERTIFICATES[name](bits)
