"""Sequences: the chain rule, accepted budgets, and bounds on the surrogate's error (statements A5, E4).

A policy over T steps is a list of log-probabilities, one `[Vᵗ, V]` array per step t, a row for every prefix in
lexicographic order; trees are small enough to enumerate, so every expectation is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from entr_lab.errors import ShapeError
from entr_lab.theory.divergence import kl_mu_pi, kl_parts, log_ratio, total_variation
from entr_lab.theory.scalars import Array, Bool, phi

__all__ = [
    "SurrogateBounds",
    "accepted_budget",
    "log_prefix",
    "sequence_kl",
    "surrogate_bounds",
    "surrogate_error",
]


class SurrogateBounds(NamedTuple):
    """Upper bounds on |J(π) − J(μ) − L|; `tightest` names the least of the first four."""

    classical: float
    pinsker_marginal: float
    mixed: float
    adaptive: float
    masked_away: float
    tightest: str

    @property
    def value(self) -> float:
        """The least bound, including what the mask took out of the surrogate."""
        return min(self[:4]) + self.masked_away


def _check(mu: Sequence[Array], pi: Sequence[Array]) -> None:
    V = mu[0].shape[-1] if mu else 0
    for t, (a, b) in enumerate(zip(mu, pi, strict=True)):
        if a.shape != (V**t, V) or b.shape != a.shape:
            raise ShapeError(f"step {t} must be [{V**t}, {V}] in both policies, got {a.shape} and {b.shape}.")


def log_prefix(policy: Sequence[Array]) -> list[Array]:
    """Log-probability of every prefix before each step: `[Vᵗ]` for t = 0 … T."""
    out = [np.zeros(1)]
    for step in policy:
        out.append((out[-1][:, None] + step).ravel())
    return out


def sequence_kl(mu: Sequence[Array], pi: Sequence[Array]) -> tuple[float, Array]:
    """KL of whole trajectories, and E_μ[KL_t] per step `[T]`.

    Statement A5: KL(trajectory) = Σ_t E_{s_t ~ μ}[KL(μ(·|s_t)‖π(·|s_t))]. Proof: log-ratios of steps add up, and the
    inner expectation is taken first. Source: textbook.

    Raises:
        ShapeError: a step is not `[Vᵗ, V]` in both policies.
    """
    _check(mu, pi)
    prefix = log_prefix(mu)
    steps = np.array([np.sum(np.exp(p) * kl_mu_pi(a, b)) for p, a, b in zip(prefix, mu, pi, strict=False)])
    whole = kl_mu_pi(prefix[-1], log_prefix(pi)[-1])
    return float(whole), steps


def accepted_budget(
    mu: Sequence[Array], pi: Sequence[Array], scale: Sequence[Array], *, tau: float, eps: float
) -> tuple[float, float, float]:
    """Accepted KL, its certificate and the rejected KL of a trajectory under ENTR's rule with scales `[Vᵗ]` per step.

    Statement (A3 summed by A5): the accepted part is at most Σ_t E_μ[φ(b_t) b_t² μ_t(S_t)], b_t² = τ(H_t + ε). The
    rejected part is in the divergence and in no certificate. Source: paper (one position), ours (sum).
    """
    _check(mu, pi)
    accepted = certificate = rejected = 0.0
    for p, a, b, s in zip(log_prefix(mu), mu, pi, scale, strict=False):
        bound_sq = tau * (s + eps)
        keep = log_ratio(a, b) ** 2 <= bound_sq[:, None]
        parts = kl_parts(a, b, keep)
        share = np.sum(np.where(keep, np.exp(a), 0.0), axis=-1)
        weight = np.exp(p)
        accepted += float(weight @ parts.accepted)
        certificate += float(weight @ (phi(np.sqrt(bound_sq)) * bound_sq * share))
        rejected += float(weight @ (parts.rejected + parts.escaped))
    return accepted, certificate, rejected


def surrogate_error(
    mu: Sequence[Array], pi: Sequence[Array], reward: Array, keep: Sequence[Bool] | None = None
) -> float:
    """J(π) − J(μ) − L, exactly, with L = E_μ[(R − c) Σ_t m_t (r_t − 1)] and c the mid-range of the reward `[V^T]`.

    Without a mask the constant c drops out. Source: ours (enumeration).
    """
    _check(mu, pi)
    prefix_mu, prefix_pi = log_prefix(mu), log_prefix(pi)
    p, q = np.exp(prefix_mu[-1]), np.exp(prefix_pi[-1])
    centred = reward - 0.5 * (reward.max() + reward.min())
    score = np.zeros(1)
    for t, (a, b) in enumerate(zip(mu, pi, strict=True)):
        gain = np.expm1(log_ratio(a, b))
        if keep is not None:
            gain = np.where(keep[t], gain, 0.0)
        score = (score[:, None] + gain).ravel()
    return float(np.sum((q - p) * centred) - np.sum(p * centred * score))


def surrogate_bounds(
    mu: Sequence[Array], pi: Sequence[Array], reward: Array, keep: Sequence[Bool] | None = None
) -> SurrogateBounds:
    """Four bounds on |surrogate error|, and what a mask adds (E4), for a reward of span Δ.

    With D_t, K_t the largest TV and KL of step t over prefixes, D̄_t = E_μ[TV_t], K* = max K_t, D* = max D_t:
      classical         Δ T(T−1) D*²                                   grows as T²
      Pinsker–Marginal  Δ K* Σ_t √(t−1) ≤ ⅔ Δ K* T^{3/2}
      mixed             Δ T √(K* · KL(trajectory))                     grows as T for a bounded trajectory KL
      adaptive          2Δ Σ_t D̄_t min(1, Σ_{s>t} D_s, √(½ Σ_{s>t} K_s))
    Proof: error = Σ_t (E_{s_t~π} − E_{s_t~μ})[g_t] with |g_t| ≤ Δ TV_t; a difference of expectations is at most
    2 max|g_t| TV(s_t), and TV(s_t) ≤ Σ D, or √(½ KL(s_t)) by Pinsker and A5. Adaptive: the same error is
    Σ_t E_μ[(r_t − 1) R (r_{>t} − 1)], whose inner part is a change of the future's expected reward. It is never above
    the other three: D̄_t ≤ D* and D̄_t ≤ √(½ E K_t), then Cauchy–Schwarz for mixed (it is below mixed/√2).
    A mask leaves every one of these divergences as they are; it *adds* ½Δ Σ_t E_μ[(1−m_t)|r_t − 1|] for what it
    took out of L. Source: Trust Region Masking, arXiv 2512.23075; constants and order ours.
    """
    _check(mu, pi)
    T, span = len(mu), float(np.ptp(reward))
    prefix = log_prefix(mu)
    tv = [total_variation(a, b) for a, b in zip(mu, pi, strict=True)]
    kl = [kl_mu_pi(a, b) for a, b in zip(mu, pi, strict=True)]
    D, K = np.array([x.max() for x in tv]), np.array([x.max() for x in kl])
    mean_tv = np.array([np.sum(np.exp(p) * x) for p, x in zip(prefix, tv, strict=False)])
    whole = float(sequence_kl(mu, pi)[0])
    later_tv, later_kl = D[::-1].cumsum()[::-1] - D, K[::-1].cumsum()[::-1] - K
    future = np.minimum(1.0, np.minimum(later_tv, np.sqrt(0.5 * np.maximum(later_kl, 0.0))))
    values = (
        span * T * (T - 1) * float(D.max()) ** 2,
        span * float(K.max()) * float(np.sqrt(np.arange(T)).sum()),
        span * T * float(np.sqrt(K.max() * whole)),
        2.0 * span * float(mean_tv @ np.maximum(future, 0.0)),
    )
    lost = 0.0
    if keep is not None:
        for p, a, b, m in zip(prefix, mu, pi, keep, strict=False):
            gap = np.abs(np.exp(a) * np.expm1(log_ratio(a, b)))
            lost += 0.5 * span * float(np.exp(p) @ np.sum(np.where(m, 0.0, gap), axis=-1))
    return SurrogateBounds(*values, lost, SurrogateBounds._fields[int(np.argmin(values))])
