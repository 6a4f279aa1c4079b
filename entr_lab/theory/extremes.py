"""Two-point extremes: the sharp bounds on KL and on E_μ[δ²] for a logit drift of range R (statement B4, C4).

κ(p, R) = log(1 − p + p e^R) − pR is KL(μ‖π) when a group of mass p is raised by R and the rest is not.
"""

from __future__ import annotations

import numpy as np

from entr_lab.theory.envelope import inverse_binary_entropy, variance_envelope
from entr_lab.theory.scalars import Array, ArrayLike, g, phi

__all__ = [
    "assembled_moment_bound",
    "bennett_kl_bound",
    "hoeffding_kl_bound",
    "kl_envelope",
    "second_moment_envelope",
    "token_ratio_range",
    "two_point_kl",
    "worst_group",
]

_SECTION_STEPS = 25
_GRID = 32


def two_point_kl(mass: ArrayLike, drift_range: ArrayLike) -> Array:
    """κ(p, R) = log(1 − p + p e^R) − pR ≥ 0; shapes broadcast; exact in relative terms for small p or R.

    Written as log1p(p g((1−p)R) + (1−p) g(−pR)) where R is moderate, and by the larger exponent where it is not.
    """
    p, R = np.broadcast_arrays(np.asarray(mass, np.float64), np.asarray(drift_range, np.float64))
    calm = R < 30.0
    r = np.where(calm, R, 0.0)
    near = np.log1p(p * g((1.0 - p) * r) + (1.0 - p) * g(-p * r))
    with np.errstate(divide="ignore"):
        far = np.logaddexp(np.log1p(-p), np.log(p) + R) - p * R
    return np.asarray(np.where(calm, near, np.maximum(far, 0.0)))


def hoeffding_kl_bound(drift_range: ArrayLike) -> Array:
    """R²/8 ≥ KL(μ‖π) (B4); any shape.

    Proof: KL = log E_μ e^X with X = Δ − E_μΔ of range R; its second derivative along the tilt is a variance of a
    variable of range R, at most R²/4. Not attained for R > 0; the ratio tends to 1 as R → 0. Source: textbook.
    """
    return np.asarray(np.asarray(drift_range, np.float64) ** 2 / 8.0)


def bennett_kl_bound(drift_range: ArrayLike, dispersion: ArrayLike) -> Array:
    """log(1 + φ(R) Var_μ(Δ)) ≥ KL(μ‖π) (B4); shapes broadcast.

    Proof: E_μ e^X = 1 + E_μ[X² φ(X)] ≤ 1 + φ(R) Var_μ(Δ), since X ≤ R and φ increases. Sharp: the raised group's
    mass tends to 0, so that X → R on it. Source: textbook.
    """
    R, var = np.broadcast_arrays(np.asarray(drift_range, np.float64), np.asarray(dispersion, np.float64))
    return np.asarray(np.log1p(phi(R) * var))


def assembled_moment_bound(drift_range: ArrayLike, entropy: ArrayLike) -> Array:
    """R² v(H) + min(R²/8, log(1 + φ(R) R² v(H)))² ≥ E_μ[δ²]: B3, B4 and A4 put together; shapes broadcast."""
    R, H = np.broadcast_arrays(np.asarray(drift_range, np.float64), np.asarray(entropy, np.float64))
    var = R**2 * variance_envelope(H)
    return np.asarray(var + np.minimum(hoeffding_kl_bound(R), bennett_kl_bound(R, var)) ** 2)


def worst_group(drift_range: ArrayLike) -> Array:
    """p*(R) = 1/R − 1/(e^R − 1) ∈ (0, ½), where κ(·, R) is largest; ½ at R = 0; any shape.

    Proof: κ is concave in p and its derivative (e^R − 1)/(1 − p + p e^R) − R vanishes there.
    """
    R = np.asarray(drift_range, dtype=np.float64)
    small = R < 1e-3
    safe = np.where(small, 1.0, R)
    with np.errstate(over="ignore"):
        far = 1.0 / safe - 1.0 / np.expm1(safe)
    return np.asarray(np.where(small, 0.5 - R / 12.0, far))


def kl_envelope(drift_range: ArrayLike, entropy: ArrayLike) -> Array:
    """max over p ≤ h_b⁻¹(H) of κ(p, R): the sharp upper bound on KL(μ‖π) given R and H; shapes broadcast.

    Statement (B4, sharp form): KL(μ‖π) ≤ κ(min(h_b⁻¹(H), p*(R)), R).
    Proof: KL = log E_μ e^Δ − E_μΔ is convex in Δ, so a vertex Δ ∈ {0, R}^V is worst, where KL = κ(p, R) with p the mass
    of the raised group and h_b(p) ≤ H. κ rises up to p* < ½, and κ(p) ≥ κ(1−p) for p ≤ ½.
    Equality: two tokens, H ≤ ln 2. Source: ours.
    """
    R, H = np.broadcast_arrays(np.asarray(drift_range, np.float64), np.asarray(entropy, np.float64))
    return two_point_kl(np.minimum(inverse_binary_entropy(H), worst_group(R)), R)


def second_moment_envelope(drift_range: ArrayLike, entropy: ArrayLike) -> Array:
    """max over p ≤ h_b⁻¹(H) of R² p(1−p) + κ(p, R)²: the sharp bound on E_μ[δ²] given R and H; shapes broadcast.

    Statement: E_μ[δ²] ≤ that maximum. Proof: E_μ[δ²] = Var_μ(Δ) + KL² is convex in Δ (a convex function plus the square
    of a convex non-negative one), so a vertex is worst; both terms at p ≤ ½ dominate those at 1−p.
    Equality: two tokens, H ≤ ln 2. Found on a grid in p, then by golden section around its best cell. Source: ours.
    """
    R, H = np.broadcast_arrays(np.asarray(drift_range, np.float64), np.asarray(entropy, np.float64))
    top = inverse_binary_entropy(H)
    grid = np.linspace(0.0, 1.0, _GRID + 1)

    def value(share: Array) -> Array:
        p = share * (top if share.ndim == top.ndim else top[..., None])
        r = R if share.ndim == top.ndim else R[..., None]
        return np.asarray(r**2 * p * (1.0 - p) + two_point_kl(p, r) ** 2)

    best = np.argmax(value(np.broadcast_to(grid, (*R.shape, _GRID + 1))), axis=-1)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, _GRID)]
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    for _ in range(_SECTION_STEPS):
        left, right = high - golden * (high - low), low + golden * (high - low)
        rising = value(np.asarray(left)) < value(np.asarray(right))
        low, high = np.where(rising, left, low), np.where(rising, high, right)
    return np.asarray(np.maximum(value(np.asarray(high)), value(np.asarray(grid[best]))))


def token_ratio_range(prob: ArrayLike, drift_range: ArrayLike) -> tuple[Array, Array]:
    """Lowest and highest δ that a drift of range R can give a token of behaviour probability q; shapes broadcast.

    Statement C4: −log(q + (1−q) e^R) ≤ δ ≤ −log(q + (1−q) e^{−R}); hence |δ| ≤ R at any q, and for a dominant token
    |δ| = O((1−q) e^R): noise on *logits* cannot blow up δ, while z = δ/√(H+ε) can reach R/√ε.
    Proof: e^{−δ} = E_μ[e^{Δ−Δ(y)}] = q + Σ_{w≠y} μ(w) e^{Δ(w)−Δ(y)}, each exponent in [−R, R].
    Equality: all other tokens move together. Source: ours.
    """
    q, R = np.broadcast_arrays(np.asarray(prob, np.float64), np.asarray(drift_range, np.float64))
    return np.asarray(-_log_mix(q, R)), np.asarray(-_log_mix(q, -R))


def _log_mix(q: Array, x: Array) -> Array:
    """log(q + (1−q) eˣ), by log1p where it is near 0."""
    with np.errstate(divide="ignore", over="ignore"):
        plain = np.logaddexp(np.log(q), np.log1p(-q) + x)
        small = (1.0 - q) * np.expm1(np.minimum(x, 30.0))
    near = (np.abs(small) < 0.5) & (x < 30.0)
    return np.asarray(np.where(near, np.log1p(np.where(near, small, 0.0)), plain))
