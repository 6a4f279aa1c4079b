"""The inverse of binary entropy, and the envelope v(H) of dispersion by entropy (statements B3 and C1).

h_b⁻¹(H) is the smaller solution q ≤ ½ of h_b(q) = H, and v(H) = q(1−q); from H = ln 2 on they are ½ and ¼.
Everything is solved for the logit s = log((1−q)/q) ∈ [0, ∞], which stays accurate where q or ½ − q vanishes.
"""

from __future__ import annotations

import numpy as np

from entr_lab.errors import check_range
from entr_lab.theory.scalars import Array, ArrayLike, Bool, binary_entropy

__all__ = [
    "LN2",
    "dispersion_bound",
    "envelope_slope",
    "inverse_binary_entropy",
    "logit_of_entropy",
    "simple_envelope",
    "variance_envelope",
]

LN2 = float(np.log(2.0))
_MAX_LOGIT = 740.0
_MAX_STEPS = 80
# ln 2 − h_b = Σ t^{2k} / (2k(2k−1)), here from k = 1 and without the leading t².
_DEFICIT_SERIES = np.array([1.0 / (2 * k * (2 * k - 1)) for k in range(1, 13)])


def _deficit(s: Array) -> Array:
    """ln 2 − h_b(q) = ½[(1+t) log1p(t) + (1−t) log1p(−t)], t = tanh(s/2); by its series where that cancels."""
    t = np.tanh(np.minimum(s, 4.0) / 2.0)
    series = t**2 * np.polynomial.polynomial.polyval(np.minimum(t, 0.2) ** 2, _DEFICIT_SERIES)
    return np.asarray(np.where(t < 0.2, series, 0.5 * ((1.0 + t) * np.log1p(t) + (1.0 - t) * np.log1p(-t))))


def _residual(s: Array, H: Array, gap: Array, by_gap: Bool) -> tuple[Array, Array]:
    """A function that increases through 0 at the solution, and its slope, in the well-conditioned form."""
    small = np.exp(-s)
    rate = s * small / (1.0 + small) ** 2  # −dh_b/ds = s q(1−q)
    h = np.log1p(small) + s * small / (1.0 + small)
    root = np.sqrt(np.maximum(_deficit(s), 1e-300))
    error = np.where(by_gap, root - np.sqrt(gap), np.log(H) - np.log(h))
    return error, np.asarray(np.where(by_gap, rate / (2.0 * root), rate / h))


def logit_of_entropy(entropy: ArrayLike) -> Array:
    """s = log((1−q)/q) ≥ 0 with h_b(q) = H; 0 for H ≥ ln 2, inf for H = 0; any shape.

    Newton steps inside a bisection bracket. Above H = ½ the equation is solved for the deficit ln 2 − H ≈ s²/8, below
    for log H, which is nearly linear in s: the relative error stays at rounding level at both ends.

    Raises:
        RangeError: an entropy is negative or not a number.
    """
    given = np.asarray(entropy, dtype=np.float64)
    check_range("entropy", float(np.min(given, initial=np.inf)), low=0.0)
    inside = (given > 0.0) & (given < LN2)
    H = np.where(inside, given, 0.25)
    gap, by_gap = LN2 - H, H > 0.5
    ln = np.maximum(-np.log(H), 0.0)
    s = np.where(by_gap, np.sqrt(8.0 * gap), np.minimum(ln + np.log1p(ln), _MAX_LOGIT))
    low, high = np.zeros(H.shape), np.full(H.shape, _MAX_LOGIT)
    for _ in range(_MAX_STEPS):
        error, slope = _residual(s, H, gap, by_gap)
        low, high = np.where(error < 0, s, low), np.where(error < 0, high, s)
        step = s - error / np.maximum(slope, 1e-300)
        new = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        done = bool(np.all(np.abs(new - s) <= 4e-15 * (1.0 + s)))
        s = new
        if done:
            break
    return np.asarray(np.where(inside, s, np.where(given <= 0.0, np.inf, 0.0)))


def inverse_binary_entropy(entropy: ArrayLike) -> Array:
    """q = h_b⁻¹(H) ∈ [0, ½], with ½ for H ≥ ln 2; any shape.

    Statement C1: a token of probability p at a position of entropy H has min(p, 1−p) ≤ h_b⁻¹(H).
    Proof: merging all other tokens into one leaves a binary distribution, and merging never raises entropy, so
    h_b(p) ≤ H. Sharp: a two-token position. Source: paper.
    """
    s = logit_of_entropy(entropy)
    small = np.exp(-s)
    q = small / (1.0 + small)
    # exp(−s) loses log₁₀(s) digits; one Newton step in q restores them where q is small.
    polish = (s > 1.0) & (q > 1e-307)
    safe = np.where(polish, q, 0.25)
    step = (binary_entropy(safe) - np.where(polish, entropy, 0.0)) / (np.log1p(-safe) - np.log(safe))
    return np.asarray(np.where(polish, q - step, q))


def variance_envelope(entropy: ArrayLike) -> Array:
    """v(H) = q(1−q) with h_b(q) = H, and ¼ for H ≥ ln 2; any shape.

    Statement B3: Var_μ(Δ) ≤ R² v(H), R = max Δ − min Δ.
    Proof: Var_μ(Δ) is convex in Δ, so over the box [min Δ, max Δ]^V it is largest at a vertex, where it is R² p(1−p)
    with p the mass of one group; merging each group gives h_b(p) ≤ H, and q(1−q) increases with h_b(q) on [0, ½].
    Sharp for every H ≤ ln 2 (two tokens), and for H > ln 2 whenever a set of tokens has mass ½. Source: ours.
    """
    q = inverse_binary_entropy(entropy)
    return np.asarray(q * (1.0 - q))


def envelope_slope(entropy: ArrayLike) -> Array:
    """v′(H) = t/(2 artanh t), t = 1 − 2 h_b⁻¹(H), for H < ln 2; rises from 0 to ½, so v is convex there; any shape.

    Proof: dv/dq = 1 − 2q = t and dh_b/dq = log((1−q)/q) = 2 artanh t, and t/artanh t decreases in t. Source: ours.
    """
    s = logit_of_entropy(entropy)
    t = np.tanh(s / 2.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = np.where(s > 0.0, t / s, 0.5)
    return np.asarray(np.where(np.isinf(s), 0.0, slope))


def simple_envelope(entropy: ArrayLike) -> Array:
    """¼ min(1, H/ln 2) ≥ v(H); any shape.

    Statement (corollary of B3): q(1−q) ≤ h_b(q)/(4 ln 2), equality at q ∈ {0, ½, 1}.
    Proof: v is convex on [0, ln 2] (see `envelope_slope`) and so lies below its chord. The chord is also the least
    concave majorant of v, hence the best bound in terms of a *mean* entropy over positions. Source: ours.
    """
    H = np.asarray(entropy, dtype=np.float64)
    check_range("entropy", float(np.min(H, initial=np.inf)), low=0.0)
    return np.asarray(0.25 * np.minimum(1.0, H / LN2))


def dispersion_bound(drift_range: ArrayLike, entropy: ArrayLike) -> Array:
    """R² v(H), the sharp bound of B3 on Var_μ(δ); shapes broadcast."""
    R = np.asarray(drift_range, dtype=np.float64)
    return np.asarray(R**2 * variance_envelope(entropy))
