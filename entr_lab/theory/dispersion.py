"""Why entropy is the scale of a log-ratio: noise, the Gini–Simpson index, lag (statements B1, B2, B5).

μ is given by log-probabilities `[..., V]`; results are `[...]`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlog1py

from entr_lab.errors import ShapeError
from entr_lab.theory.divergence import variance
from entr_lab.theory.envelope import LN2
from entr_lab.theory.scalars import Array, ArrayLike

__all__ = [
    "drift_range",
    "entropy",
    "expected_dispersion",
    "gini_bound",
    "gini_simpson",
    "lag_dispersion",
    "noise_dispersion",
    "range_after_lag",
]


def _tail(logp: Array) -> tuple[Array, Array]:
    """Probabilities with the likeliest token's set to 0, and their sum: 1 − μ_max without cancellation."""
    top = np.argmax(logp, axis=-1)[..., None]
    others = np.where(np.arange(logp.shape[-1]) == top, 0.0, np.exp(logp))
    return others, np.asarray(np.sum(others, axis=-1))


def entropy(logp_mu: ArrayLike) -> Array:
    """H = −Σ μ log μ in nats, `[...]`; tokens of probability 0 add nothing.

    The likeliest token's term uses log1p(−tail): in a one-hot limit log μ_max rounds to 0, and its share of H with it.
    """
    logp = np.asarray(logp_mu, dtype=np.float64)
    others, tail = _tail(logp)
    tail = np.minimum(tail, 1.0)
    rest = np.sum(others * np.where(others > 0, logp, 0.0), axis=-1)
    return np.asarray(np.maximum(-rest - xlog1py(1.0 - tail, -tail), 0.0))


def gini_simpson(logp_mu: ArrayLike) -> Array:
    """G = 1 − Σ μ² = Σ μ(1−μ), `[...]`, with 1 − μ_max taken from the tail so that one-hot limits keep their digits."""
    others, tail = _tail(np.asarray(logp_mu, dtype=np.float64))
    return np.asarray((1.0 - tail) * tail + np.sum(others * (1.0 - others), axis=-1))


def gini_bound(entropy: ArrayLike) -> Array:
    """H/(2 ln 2) ≥ G; any shape.

    Statement B2 (second half): G ≤ H/(2 ln 2), equality for a fair coin (and at H = 0).
    Proof: split off one token of probability p: G = 2p(1−p) + (1−p)² G′ and H = h_b(p) + (1−p) H′. By the scalar lemma
    4 ln 2 · p(1−p) ≤ h_b(p) and induction on V, G ≤ [h_b(p) + (1−p)² H′]/(2 ln 2) ≤ H/(2 ln 2). So "dispersion grows
    with H" is an upper envelope, not an identity: G/H tends to 0 for a one-hot limit. Source: ours.
    """
    return np.asarray(np.asarray(entropy, dtype=np.float64) / (2.0 * LN2))


def noise_dispersion(logp_mu: ArrayLike, sigma: ArrayLike) -> Array:
    """E_η[Var_μ(η)] = σ² G for i.i.d. logit noise η of variance σ², `[...]`.

    Statement B2 (exact); to first order it is E[δ²] (B1), because E[δ²] = Var_μ(η) + KL² and KL² = O(σ⁴).
    Proof: Var_μ(η) = Σ μ η² − (Σ μ η)², and E[(Σ μ η)²] = σ² Σ μ². Source: B1 paper (first order), B2 ours.
    """
    return np.asarray(np.asarray(sigma, np.float64) ** 2 * gini_simpson(logp_mu))


def expected_dispersion(logp_mu: ArrayLike, covariance: ArrayLike) -> Array:
    """E[Var_μ(Δ)] = Σ_y μ_y C_yy − μᵀ C μ for any zero-mean drift with covariance C `[V, V]`; `[...]`.

    It equals σ² G exactly when C = σ² I, up to adding a constant to every logit. Source: ours.

    Raises:
        ShapeError: C is not square of size V.
    """
    mu, C = np.exp(np.asarray(logp_mu, np.float64)), np.asarray(covariance, np.float64)
    if C.shape != (mu.shape[-1], mu.shape[-1]):
        raise ShapeError(f"covariance must be [{mu.shape[-1]}, {mu.shape[-1]}], got {list(C.shape)}.")
    return np.asarray(mu @ np.diag(C) - np.einsum("...i,ij,...j->...", mu, C, mu))


def drift_range(drift: ArrayLike) -> Array:
    """R = max Δ − min Δ over the last axis, `[...]`; a seminorm, blind to a common shift."""
    drift = np.asarray(drift, dtype=np.float64)
    return np.asarray(drift.max(axis=-1) - drift.min(axis=-1))


def range_after_lag(steps: ArrayLike) -> tuple[Array, Array]:
    """Range of the summed drift and the sum of the steps' ranges, each `[...]`, from steps `[..., K, V]`.

    Statement B5 (worst case): R(Σ Δ_j) ≤ Σ R(Δ_j), linear in lag. Proof: R is a seminorm.
    Equality: all steps peak and dip at the same tokens. Source: ours.
    """
    steps = np.asarray(steps, dtype=np.float64)
    return drift_range(steps.sum(axis=-2)), np.asarray(drift_range(steps).sum(axis=-1))


def lag_dispersion(logp_mu: ArrayLike, steps: ArrayLike) -> tuple[Array, Array]:
    """Var_μ(Σ Δ_j) and Σ Var_μ(Δ_j), each `[...]`, from steps `[..., K, V]`.

    Statement B5 (random walk): for steps with zero mean that are uncorrelated with each other the two have the same
    expectation, so the variance is linear in lag; it is (Σ σ_j²) G only if, further, each step's components are
    uncorrelated with equal variance (independence of the steps alone is not enough; see `expected_dispersion`).
    For perfectly aligned steps the first is up to K times the second (ballistic: quadratic in lag).
    Proof: the cross terms 2 Cov_μ(Δ_i, Δ_j) have expectation zero; Cauchy–Schwarz bounds them otherwise. Source: ours.
    """
    steps = np.asarray(steps, dtype=np.float64)
    logp = np.asarray(logp_mu, dtype=np.float64)
    return variance(logp, steps.sum(axis=-2)), np.asarray(variance(logp[..., None, :], steps).sum(axis=-1))
