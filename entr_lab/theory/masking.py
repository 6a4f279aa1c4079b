"""What a keep rule does to the gradient estimator, exactly, by enumeration of the vocabulary (statements E1–E3).

One sample y ~ μ contributes w(y) A(y) f(y), with f(y) = ∇ log π(y) = e_y − π in logit space and w the rule's detached
weight: r = π/μ on kept tokens, possibly capped, 0 on rejected ones. The target is E_π[A f].
Nothing here bounds a divergence: a mask chooses which tokens enter the gradient, and KL(μ‖π) keeps all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from entr_lab.errors import ShapeError
from entr_lab.theory import boundary
from entr_lab.theory.boundary import scaled_envelope
from entr_lab.theory.dispersion import entropy, gini_simpson
from entr_lab.theory.scalars import Array, ArrayLike, Bool, xexp

__all__ = [
    "EPS",
    "WEIGHTS",
    "Enumeration",
    "Moments",
    "WeightRule",
    "enumerate_tokens",
    "estimator_moments",
    "is_outward",
    "mean_squared_error",
]

EPS = 0.01  # ENTR's ε, from public notes on the paper


class Enumeration(NamedTuple):
    """Every token of `B` positions; all `[B, V]` but `entropy` and `gini`, which are `[B, 1]`.

    `delta` and the boundary read what the engine *recorded*; `mu` is what the token was drawn from.
    """

    mu: Array
    pi: Array
    ratio: Array
    delta: Array
    logp_rec: Array
    logp_pi: Array
    advantage: Array
    entropy: Array
    gini: Array


class Moments(NamedTuple):
    """Exact moments of one sample's gradient, each `[B]`."""

    bias_sq: Array
    variance: Array
    weight_sq: Array
    rejected: Array


@dataclass(frozen=True, slots=True)
class WeightRule:
    """A rule as a function of one threshold: its weight `[B, V]`, its default, and what the threshold is."""

    weight: Callable[[Enumeration, float], Array]
    default: float
    threshold: str


def enumerate_tokens(
    logp_mu: ArrayLike, logp_pi: ArrayLike, advantage: ArrayLike, logp_rec: ArrayLike | None = None
) -> Enumeration:
    """Prepare `[B, V]` positions for the rules; `logp_rec` is the record where it differs from the sampler.

    Raises:
        ShapeError: the arrays are not of one shape `[B, V]`.
    """
    lm, lp, adv = (np.asarray(x, np.float64) for x in (logp_mu, logp_pi, advantage))
    lr = lm if logp_rec is None else np.asarray(logp_rec, np.float64)
    if lm.ndim != 2 or not lm.shape == lp.shape == adv.shape == lr.shape:
        raise ShapeError(f"expected four [B, V] arrays, got {lm.shape}, {lp.shape}, {adv.shape}, {lr.shape}.")
    delta = lp - lr
    return Enumeration(
        np.exp(lm), np.exp(lp), xexp(delta), delta, lr, lp, adv, entropy(lm)[:, None], gini_simpson(lm)[:, None]
    )


def is_outward(delta: ArrayLike, advantage: ArrayLike) -> Bool:
    """A·δ > 0: the token's own gradient pushes it further out (G1). A = 0 and δ = 0 are not outward."""
    return np.asarray(np.sign(np.asarray(advantage)) * np.sign(np.asarray(delta)) > 0)


def estimator_moments(tokens: Enumeration, weight: ArrayLike) -> Moments:
    """Squared bias, variance (trace), E_μ[w²] and π(w < r) of one sample's gradient.

    Statement E1: E_μ[m r f] − E_π[f] = −E_π[(1−m) f] − E_π[1(μ=0) f], so ‖bias‖ ≤ max‖f‖ · π(rejected or out of reach).
    Statement E2: E_μ[m r²] = E_π[m r] ≤ e^b when keeping implies δ ≤ b; with no mask it is 1 + χ²(π‖μ), unbounded.
    Proof: μ r = π on the support of μ. Both need an exact record; ‖e_y − π‖² = 1 − 2π_y + Σπ². Source: ours.
    """
    w = np.asarray(weight, np.float64)
    c = tokens.mu * w * tokens.advantage
    goal = tokens.pi * tokens.advantage
    pi_sq = np.sum(tokens.pi**2, axis=-1)
    gap = c - goal
    bias_sq = _norm_sq(gap, tokens.pi, pi_sq)
    norm = 1.0 - 2.0 * tokens.pi + pi_sq[:, None]
    second = np.sum(c * w * tokens.advantage * norm, axis=-1)
    variance = np.maximum(second - _norm_sq(c, tokens.pi, pi_sq), 0.0)
    rejected = np.sum(np.where(w < tokens.ratio, tokens.pi, 0.0), axis=-1)
    return Moments(bias_sq, variance, np.sum(tokens.mu * w * w, axis=-1), rejected)


def _norm_sq(c: Array, pi: Array, pi_sq: Array) -> Array:
    """‖Σ_y c_y (e_y − π)‖² = ‖c − π Σc‖², `[B]`."""
    total = np.sum(c, axis=-1)
    cross = np.einsum("bv,bv->b", c, pi)
    return np.asarray(np.maximum(np.einsum("bv,bv->b", c, c) - 2.0 * total * cross + total**2 * pi_sq, 0.0))


def mean_squared_error(moments: Moments, samples: int) -> Array:
    """‖bias‖² + variance/N, `[B]`, for the mean of N independent samples (E3)."""
    return np.asarray(moments.bias_sq + moments.variance / samples)


def _masked(tokens: Enumeration, keep: Bool) -> Array:
    return np.asarray(np.where(keep, tokens.ratio, 0.0))


def _entr(tokens: Enumeration, tau: float, scale: Array) -> Bool:
    return boundary.keep_entr(tokens.delta, scale, tau=tau, eps=EPS)


def _cap(tokens: Enumeration, tau: float) -> Array:
    b = boundary.entr_boundary(tokens.entropy, tau=tau, eps=EPS)
    return np.asarray(np.minimum(tokens.ratio, xexp(b)))


def _kept_sides(tokens: Enumeration, tau: float, *, drop_outward: bool) -> Bool:
    outward = is_outward(tokens.delta, tokens.advantage)
    return _entr(tokens, tau, tokens.entropy) | (~outward if drop_outward else outward)


WEIGHTS: dict[str, WeightRule] = {
    "keep-all": WeightRule(lambda t, _: t.ratio, 1.0, "none"),
    "fixed": WeightRule(lambda t, c: _masked(t, boundary.keep_fixed(t.delta, threshold=c)), 1.2, "c"),
    "icepop": WeightRule(
        lambda t, x: _masked(t, boundary.keep_band(t.delta, low=0.5**x, high=5.0**x)), 1.0, "x in [2⁻ˣ, 5ˣ]"
    ),
    "kpop": WeightRule(lambda t, phi: _masked(t, boundary.keep_kpop(t.logp_rec, t.logp_pi, threshold=phi)), 0.1, "φ"),
    "entr": WeightRule(lambda t, tau: _masked(t, _entr(t, tau, t.entropy)), 1.0, "τ"),
    "entr-gini": WeightRule(lambda t, tau: _masked(t, _entr(t, tau, t.gini)), 1.0, "τ"),
    "entr-envelope": WeightRule(lambda t, tau: _masked(t, _entr(t, tau, scaled_envelope(t.entropy))), 1.0, "τ"),
    "entr-outward": WeightRule(
        lambda t, tau: np.where(_kept_sides(t, tau, drop_outward=True), _cap(t, tau), 0.0), 1.0, "τ"
    ),
    "entr-outward-uncapped": WeightRule(lambda t, tau: _masked(t, _kept_sides(t, tau, drop_outward=True)), 1.0, "τ"),
    "entr-inward-dropped": WeightRule(lambda t, tau: _masked(t, _kept_sides(t, tau, drop_outward=False)), 1.0, "τ"),
    "entr-truncated": WeightRule(_cap, 1.0, "τ"),
    "truncated": WeightRule(lambda t, c: np.minimum(t.ratio, c), 2.0, "C"),
}
