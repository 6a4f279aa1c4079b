"""Divergences at one position, and the squared log-ratio (statements A1–A4, A6).

Every function takes the behaviour policy and the target policy as log-probabilities `[..., V]` of one
vocabulary and returns `[...]` in nats. δ = log π − log μ. A token that μ cannot produce (−inf) has no δ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from entr_lab.errors import check_range
from entr_lab.theory.scalars import Array, ArrayLike, Bool, g, phi, xexp

__all__ = [
    "KlParts",
    "bracket",
    "chi_square",
    "ess_fraction",
    "k3_mean",
    "kl_mu_pi",
    "kl_parts",
    "kl_pi_mu",
    "log_ratio",
    "normalise",
    "renyi2",
    "second_moment",
    "tilt",
    "total_variation",
    "variance",
]

_SAFE_EXPONENT = 600.0


class KlParts(NamedTuple):
    """KL(μ‖π) split by a set of tokens; the three parts add up to the full divergence, each `[...]`."""

    accepted: Array
    rejected: Array
    escaped: Array


def normalise(logits: ArrayLike) -> Array:
    """Log-probabilities of softmax(logits) over the last axis."""
    logits = np.asarray(logits, dtype=np.float64)
    return np.asarray(logits - logsumexp(logits, axis=-1, keepdims=True))


def log_ratio(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """δ = log π − log μ, `[..., V]`; 0 where μ = 0, since such a token is never sampled."""
    logp_mu, logp_pi = np.asarray(logp_mu, np.float64), np.asarray(logp_pi, np.float64)
    support = np.isfinite(logp_mu)
    return np.asarray(np.where(support, logp_pi - np.where(support, logp_mu, 0.0), 0.0))


def tilt(logp_mu: ArrayLike, drift: ArrayLike) -> tuple[Array, Array]:
    """δ `[..., V]` and KL(μ‖π) `[...]` for π = softmax(log μ + Δ), accurate also for Δ ≈ 0.

    With X = Δ − E_μΔ: KL(μ‖π) = log E_μ e^X = log1p(E_μ g(X)) and δ = X − KL. No two nearly equal numbers are
    subtracted, which `log_ratio` of two softmaxes cannot avoid.
    """
    logp_mu, drift = np.broadcast_arrays(np.asarray(logp_mu, np.float64), np.asarray(drift, np.float64))
    mu = np.exp(logp_mu)
    X = _centred(logp_mu, drift)
    calm = np.max(X, axis=-1) < _SAFE_EXPONENT
    small = np.log1p(np.sum(mu * g(np.minimum(X, _SAFE_EXPONENT)), axis=-1))
    kl = np.where(calm, small, logsumexp(logp_mu + X, axis=-1))
    return np.asarray(X - kl[..., None]), np.asarray(np.maximum(kl, 0.0))


def _centred(logp_mu: Array, x: Array) -> Array:
    """x − E_μ[x], `[..., V]`, measured from the likeliest token first, so that a one-hot limit keeps its digits."""
    mu = np.exp(logp_mu)
    x = np.where(mu > 0, x, 0.0)
    y = x - np.take_along_axis(x, np.argmax(logp_mu, axis=-1)[..., None], axis=-1)
    return np.asarray(y - np.sum(mu * y, axis=-1, keepdims=True))


def kl_parts(logp_mu: ArrayLike, logp_pi: ArrayLike, accepted: Bool | None = None) -> KlParts:
    """KL(μ‖π) as accepted + rejected + escaped parts (statements A1 and A3).

    Statement: KL(μ‖π) = E_μ[g(δ)] + π(μ = 0). The last term is the mass that π puts where μ cannot sample (after
    top-p or top-k); it is 0 when μ has full support, and then this is the identity KL = E_μ[k3].
    Proof: E_μ[g(δ)] = E_μ[e^δ] − 1 − E_μ[δ] and E_μ[e^δ] = π(μ > 0).
    A mask selects which tokens contribute to a gradient; the rejected part stays in the divergence.
    Source: paper (full support); the escaped term is ours.
    """
    logp_mu, logp_pi = np.broadcast_arrays(np.asarray(logp_mu, np.float64), np.asarray(logp_pi, np.float64))
    term = _k3_terms(logp_mu, log_ratio(logp_mu, logp_pi))
    keep = np.ones(term.shape, dtype=bool) if accepted is None else np.broadcast_to(accepted, term.shape)
    return KlParts(
        np.sum(np.where(keep, term, 0.0), axis=-1),
        np.sum(np.where(keep, 0.0, term), axis=-1),
        np.sum(np.where(np.isfinite(logp_mu), 0.0, np.exp(logp_pi)), axis=-1),
    )


def _k3_terms(logp_mu: Array, delta: Array) -> Array:
    """μ g(δ), `[..., V]`; far from 0 as μe^δ − μ − μδ with μe^δ = π from its logarithm, which never overflows."""
    mu = np.exp(logp_mu)
    near = np.abs(delta) <= 1.0
    with np.errstate(invalid="ignore"):
        far = np.exp(np.minimum(logp_mu + delta, 0.0)) - mu - np.where(mu > 0, mu * delta, 0.0)
    term = np.where(near, mu * g(np.where(near, delta, 0.0)), far)
    return np.asarray(np.where(np.isfinite(logp_mu), term, 0.0))


def k3_mean(logp_mu: ArrayLike, delta: ArrayLike, accepted: Bool | None = None) -> Array:
    """E_μ[1_S g(δ)], `[...]`, from δ itself: forming log π and subtracting again would lose digits."""
    logp_mu, delta = np.broadcast_arrays(np.asarray(logp_mu, np.float64), np.asarray(delta, np.float64))
    term = _k3_terms(logp_mu, delta)
    return np.asarray(np.sum(term if accepted is None else np.where(accepted, term, 0.0), axis=-1))


def kl_mu_pi(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """Full KL(μ‖π), `[...]`, summed from non-negative terms (see `kl_parts`)."""
    return np.asarray(sum(kl_parts(logp_mu, logp_pi)))


def kl_pi_mu(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """Reverse KL(π‖μ), `[...]`; inf when π has mass where μ has none."""
    return kl_mu_pi(logp_pi, logp_mu)


def second_moment(logp_mu: ArrayLike, delta: ArrayLike, accepted: Bool | None = None) -> Array:
    """E_μ[1_S δ²], `[...]`, with S all tokens unless `accepted` is given."""
    mu, delta = np.exp(np.asarray(logp_mu, np.float64)), np.asarray(delta, np.float64)
    term = mu * np.where(mu > 0, delta, 0.0) ** 2
    return np.asarray(np.sum(term if accepted is None else np.where(accepted, term, 0.0), axis=-1))


def variance(logp_mu: ArrayLike, x: ArrayLike) -> Array:
    """Var_μ(x), `[...]`, from centred values.

    Statement A4: E_μ[δ²] = Var_μ(δ) + KL(μ‖π)² and Var_μ(δ) = Var_μ(Δ).
    Proof: E_μ[δ] = −KL(μ‖π), and δ differs from Δ by a constant. Source: paper.
    """
    logp_mu, x = np.broadcast_arrays(np.asarray(logp_mu, np.float64), np.asarray(x, np.float64))
    return np.asarray(np.sum(np.exp(logp_mu) * _centred(logp_mu, x) ** 2, axis=-1))


def bracket(radius: ArrayLike, moment: ArrayLike) -> tuple[Array, Array]:
    """Lower and upper end of statements A2 and A3: φ(−b)·m and φ(b)·m.

    Statement: if |δ| ≤ b on a set S, then φ(−b) E_μ[1_S δ²] ≤ E_μ[1_S g(δ)] ≤ φ(b) E_μ[1_S δ²]. With S the whole
    support the middle is KL(μ‖π) (A2); with S a keep rule's accepted tokens it is only their share of it (A3).
    Proof: g(δ) = δ² φ(δ) and φ is increasing. Sharp at both ends: one token of vanishing mass at δ = ±b.
    Source: paper.

    Raises:
        RangeError: a radius is negative or not a number.
    """
    b, m = np.asarray(radius, np.float64), np.asarray(moment, np.float64)
    check_range("radius", float(np.min(b, initial=np.inf)), low=0.0)
    return np.asarray(phi(-b) * m), np.asarray(phi(b) * m)


def total_variation(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """TV(μ, π) = ½ Σ |π − μ|, `[...]`, with |π − μ| = μ |expm1(δ)| where δ is small.

    Statements (A6, textbook): TV ≤ √(KL/2) for either direction (Pinsker), TV ≤ √(1 − e^{−KL}) (Bretagnolle–Huber),
    TV ≤ ½ √χ². Pinsker is sharp for a nearly fair coin, the second only as KL → ∞.
    """
    mu, pi = np.exp(np.asarray(logp_mu, np.float64)), np.exp(np.asarray(logp_pi, np.float64))
    delta = log_ratio(logp_mu, logp_pi)
    near = np.abs(delta) <= 1.0
    gap = np.where(near & (mu > 0), mu * np.abs(np.expm1(np.where(near, delta, 0.0))), np.abs(pi - mu))
    return np.asarray(0.5 * np.sum(gap, axis=-1))


def renyi2(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """Rényi divergence of order 2, log E_μ[e^{2δ}] = log Σ π²/μ, `[...]`; ≥ KL(π‖μ); inf if π escapes μ's support.

    Evaluated as log1p(E_μ[(e^δ − 1)²]) while that cannot overflow, and by log-sum-exp beyond.
    """
    logp_mu, logp_pi = np.broadcast_arrays(np.asarray(logp_mu, np.float64), np.asarray(logp_pi, np.float64))
    escaped = np.any(~np.isfinite(logp_mu) & np.isfinite(logp_pi), axis=-1)
    delta = log_ratio(logp_mu, logp_pi)
    exponent = np.where(np.isfinite(logp_mu), logp_mu + 2.0 * delta, -np.inf)
    calm = np.max(delta, axis=-1) < _SAFE_EXPONENT / 2
    centred = np.sum(np.exp(logp_mu) * np.expm1(np.minimum(delta, _SAFE_EXPONENT / 2)) ** 2, axis=-1)
    value = np.where(calm, np.log1p(centred), logsumexp(exponent, axis=-1))
    return np.asarray(np.where(escaped, np.inf, np.maximum(value, 0.0)))


def chi_square(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """χ²(π‖μ) = E_μ[e^{2δ}] − 1, `[...]`: the variance of the unmasked importance ratio (A6, E2)."""
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(renyi2(logp_mu, logp_pi)))


def ess_fraction(logp_mu: ArrayLike, logp_pi: ArrayLike) -> Array:
    """1/(1 + χ²) = e^{−Rényi-2}, `[...]`: the large-sample effective sample size per sample (A6)."""
    return xexp(-renyi2(logp_mu, logp_pi))
