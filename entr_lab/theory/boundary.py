"""Keep rules as boundaries in (δ, H, probability): statements C2, C3, D1, D2.

All are theory's own float64 functions, written from the inequalities, so that they can disagree with the rules of the
trainer. A token is kept where the stated inequality holds, ends included. Shapes broadcast.
"""

from __future__ import annotations

import numpy as np

from entr_lab.errors import check_range
from entr_lab.theory.envelope import LN2, variance_envelope
from entr_lab.theory.scalars import Array, ArrayLike, Bool

__all__ = [
    "amplification_bound",
    "crossing_entropy",
    "discrepancy_interval",
    "entr_boundary",
    "keep_band",
    "keep_entr",
    "keep_fixed",
    "keep_kpop",
    "log_ratio_of_discrepancy",
    "scaled_envelope",
    "scaled_gini",
]


def entr_boundary(scale: ArrayLike, *, tau: float, eps: float) -> Array:
    """b = √(τ (s + ε)), the largest kept |δ|; any shape.

    Statement D1: keep ⇔ δ² ≤ τ(H + ε). b → √(τε) as H → 0 and b/√(τH) → 1 as H → ∞. The scale s is H for ENTR as
    published; any other normaliser (G, v(H)) may stand in its place (D2). Source: paper (H), ours (others).

    Raises:
        RangeError: τ or ε is not positive, or a scale is negative.
    """
    check_range("tau", tau, low=0.0, low_open=True)
    check_range("eps", eps, low=0.0, low_open=True)
    s = np.asarray(scale, dtype=np.float64)
    check_range("scale", float(np.min(s, initial=np.inf)), low=0.0)
    return np.asarray(np.sqrt(tau * (s + eps)))


def crossing_entropy(reference: float, *, eps: float) -> float:
    """H = C − ε, where ENTR's boundary meets the constant √(τC); tighter below, wider above (D1). Source: paper.

    Raises:
        RangeError: C ≤ ε, so the two never meet.
    """
    return check_range("reference scale C", reference, low=eps, low_open=True) - eps


def scaled_envelope(entropy: ArrayLike) -> Array:
    """4 ln 2 · v(H) ≤ H (D2): the exact envelope in units where it equals H at H = ln 2; constant beyond. Ours."""
    return np.asarray(4.0 * LN2 * variance_envelope(entropy))


def scaled_gini(gini: ArrayLike) -> Array:
    """2 ln 2 · G ≤ H (D2): the Gini–Simpson index in units where it equals H for a fair coin. Ours."""
    return np.asarray(2.0 * LN2 * np.asarray(gini, dtype=np.float64))


def keep_fixed(delta: ArrayLike, *, threshold: float) -> Bool:
    """|δ| ≤ c. Source: the constant rule of the paper's Table 2."""
    return np.asarray(np.abs(np.asarray(delta, np.float64)) <= threshold)


def keep_band(delta: ArrayLike, *, low: float, high: float) -> Bool:
    """low ≤ e^δ ≤ high, compared as log low ≤ δ ≤ log high. Source: IcePop."""
    check_range("low", low, low=0.0, low_open=True)
    check_range("high", high, low=low)
    delta = np.asarray(delta, np.float64)
    return np.asarray((delta >= np.log(low)) & (delta <= np.log(high)))


def keep_kpop(logp_mu: ArrayLike, logp_pi: ArrayLike, *, threshold: float, floor: float = 1e-6) -> Bool:
    """max(D_B(π‖μ), D_B(μ‖π)) ≤ φ for the sampled token's probabilities, clamped to [floor, 1 − floor].

    The clamp is part of the rule: two probabilities below the floor are at distance 0 whatever their ratio.
    Source: KPop.
    """
    check_range("floor", floor, low=0.0, low_open=True, high=0.5)
    low, high = np.log(floor), np.log1p(-floor)
    lp, lq = np.clip(np.asarray(logp_pi, np.float64), low, high), np.clip(np.asarray(logp_mu, np.float64), low, high)
    p, q = np.exp(lp), np.exp(lq)
    # The sum of two opposite terms is exact to 1e-16 in absolute terms, which is what a comparison with φ needs.
    x, y = lp - lq, np.log1p(-p) - np.log1p(-q)
    one, other = p * (x - y) + y, q * (y - x) - y
    return np.asarray(np.maximum(one, other) <= threshold)


def keep_entr(delta: ArrayLike, scale: ArrayLike, *, tau: float, eps: float) -> Bool:
    """δ² ≤ τ(s + ε), s = H as published (D1). Source: paper."""
    entr_boundary(scale, tau=tau, eps=eps)
    delta = np.asarray(delta, np.float64)
    return np.asarray(delta**2 <= tau * (np.asarray(scale, np.float64) + eps))


def log_ratio_of_discrepancy(prob: ArrayLike, discrepancy: ArrayLike) -> Array:
    """δ = log(q/(q+e)) = −log1p(e/q): the target gives q, the record says q + e; +inf at e = −q."""
    q, e = np.asarray(prob, np.float64), np.asarray(discrepancy, np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log1p(np.maximum(e / q, -1.0)))


def amplification_bound(prob: ArrayLike, discrepancy: ArrayLike) -> Array:
    """|e|/(q + |e|) ≤ |δ| for δ = log(q/(q+e)).

    Statement C2: the bound holds for either sign of e, and |δ|/(|e|/q) → 1 as e/q → 0, so a fixed discrepancy weighs
    1/q more on a rare token; for e ≫ q the growth is only log(e/q), still unbounded relative to √H as q → 0 at fixed H.
    Proof: with x = |e|/q, log(1+x) ≥ x/(1+x), and −log(1−x) ≥ x ≥ x/(1+x). Sharp as e/q → 0. Source: paper.
    """
    q, e = np.asarray(prob, np.float64), np.abs(np.asarray(discrepancy, np.float64))
    return np.asarray(e / (q + e))


def discrepancy_interval(prob: ArrayLike, boundary: ArrayLike) -> tuple[Array, Array]:
    """The discrepancies e that a boundary b keeps at target probability q: [q(e^{−b} − 1), q(e^{b} − 1)].

    Statement C3: |δ| ≤ b ⇔ e lies there. At constant b both ends are linear in q. Along the binary envelope, with
    b(h_b(q)), they do not merely level off: they peak inside (½, 1) and return to e^{±√(τε)} − 1 at q = 1, because
    h_b has slope −∞ there; and the upper end can be reached only where q(e^{b} − 1) ≤ 1 − q.
    Proof: e = q(e^{−δ} − 1) is monotone in δ. Source: paper (interval); the peak is ours, and corrects "saturates".
    """
    q, b = np.asarray(prob, np.float64), np.asarray(boundary, np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(q * np.expm1(-b)), np.asarray(q * np.expm1(b))
