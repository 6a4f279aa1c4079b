"""Sections C and D: why low entropy is different, and the boundary."""

from __future__ import annotations

import numpy as np

from entr_lab.theory import boundary as bd
from entr_lab.theory.adversary import Position
from entr_lab.theory.dispersion import drift_range, entropy, gini_simpson
from entr_lab.theory.divergence import tilt
from entr_lab.theory.envelope import inverse_binary_entropy
from entr_lab.theory.extremes import token_ratio_range
from entr_lab.theory.scalars import Array, binary_entropy
from entr_lab.theory.statements.base import Finding, Part, Search, Statement, check_parts, measured, ratio_of

__all__ = ["STATEMENTS"]


def _c1(p: Position) -> Array:
    mu = np.exp(p.logp_mu)
    rest = np.stack([np.delete(mu, j, axis=1).sum(axis=1) for j in range(min(mu.shape[1], 8))], axis=1)
    smaller = np.max(np.minimum(mu[:, : rest.shape[1]], rest), axis=1)
    return ratio_of(smaller, inverse_binary_entropy(entropy(p.logp_mu)))


def _discrepancy(p: Position) -> tuple[Array, Array]:
    """q over 300 decades and e/q over 40, either sign, with q + e > 0."""
    q = 10.0 ** (-300.0 * p.scalars[:, 0])
    x = 10.0 ** (40.0 * p.scalars[:, 1] - 30.0)
    return q, np.where(p.aux[:, 0] > 0, q * x, -q * np.minimum(x, 1.0 - 1e-12))


def _c2_ratio(p: Position) -> Array:
    q, e = _discrepancy(p)
    return ratio_of(bd.amplification_bound(q, e), np.abs(bd.log_ratio_of_discrepancy(q, e)))


def _c2(how: Search) -> list[Finding]:
    growth = np.abs(bd.log_ratio_of_discrepancy(10.0 ** -np.arange(3.0, 300.0, 30.0), 1e-3))
    note = "at fixed e the growth is log(e/q), not e/q: " + ", ".join(f"{g:.0f}" for g in growth[:5]) + " … nats"
    rising = float(np.all(np.diff(growth) > 0))
    found = check_parts(Part("|e|/(q+|e|) ≤ |δ|", _c2_ratio, True, 2))(how)
    return [*found, measured("|δ| → ∞ as q → 0", rising, 1.0, 0.0, tried=10, note=note)]


def _c3(how: Search) -> list[Finding]:
    rng = np.random.default_rng(how.seed)
    q, b = 10.0 ** rng.uniform(-8, 0, 100_000), rng.uniform(0.01, 3, 100_000)
    e = q * np.expm1(rng.uniform(-4, 4, 100_000))
    low, high = bd.discrepancy_interval(q, b)
    away = np.minimum(np.abs(e - low), np.abs(e - high)) > 1e-12 * q
    wrong = np.sum(((low <= e) & (e <= high) != (np.abs(np.log1p(e / q)) <= b)) & away)
    grid = np.linspace(0.5, 1.0, 4001)
    top = bd.discrepancy_interval(grid, bd.entr_boundary(binary_entropy(grid), tau=1.0, eps=0.01))[1]
    peak = int(np.argmax(top))
    note = f"peak {top[peak]:.2f} at q = {grid[peak]:.2f}, then down to {top[-1]:.3f} at q = 1 (τ = 1, ε = 0.01)"
    inside = float(0 < peak < len(grid) - 1)
    return [
        measured("|δ| ≤ b ⇔ e in its interval", float(wrong), 0.0, 0.0, tried=100_000, kind="identity"),
        measured("along the envelope: a peak inside", inside, 1.0, 0.0, tried=4001, note=note),
    ]


def _c4(p: Position) -> Array:
    """The largest share of its allowed range that any token's δ uses, on the side it lies on."""
    # 1 − q is known to 1e-16 and is multiplied by e^R, so R ≤ 8 and |δ| > 1e-3 leave nine digits.
    drift = np.clip(p.drift, -4.0, 4.0)
    delta, R = tilt(p.logp_mu, drift)[0], drift_range(drift)[:, None]
    mu = np.exp(p.logp_mu)
    low, high = token_ratio_range(mu, R)
    share = np.where(delta > 0, ratio_of(delta, high, 1e-3), ratio_of(-delta, -low, 1e-3))
    return np.asarray(np.max(np.where(mu > 0, share, 0.0), axis=-1))


def _d1(how: Search) -> list[Finding]:
    rng = np.random.default_rng(how.seed)
    H, tau, eps = rng.uniform(0, 8, 20_000), rng.uniform(0.2, 3, 20_000), 10.0 ** rng.uniform(-3, 0, 20_000)
    C = eps + rng.uniform(1e-3, 5, 20_000)
    wrong = 0
    for h, t, e, c in zip(H[:2000], tau, eps, C, strict=False):
        tighter = bd.entr_boundary(h, tau=t, eps=e) < np.sqrt(t * c)
        wrong += bool(tighter != (h < bd.crossing_entropy(c, eps=e)))
    limit = float(bd.entr_boundary(0.0, tau=1.6, eps=0.01) / np.sqrt(0.016))
    return [
        measured("tighter ⇔ H < C − ε", float(wrong), 0.0, 0.0, tried=2000, kind="identity"),
        measured("b(0) = √(τε)", limit, 1.0, 1e-12, tried=1, kind="identity"),
    ]


_D2 = check_parts(
    Part(
        "4 ln 2 v(H) ≤ H",
        lambda p: ratio_of(bd.scaled_envelope(entropy(p.logp_mu)), entropy(p.logp_mu)),
        True,
    ),
    Part("2 ln 2 G ≤ H", lambda p: ratio_of(bd.scaled_gini(gini_simpson(p.logp_mu)), entropy(p.logp_mu)), True),
)

STATEMENTS = (
    Statement(
        "C1",
        "min(q, 1−q) ≤ h_b⁻¹(H) for every token",
        "paper",
        "merging tokens cannot raise entropy",
        check_parts(Part("min(q, 1−q) ≤ h_b⁻¹(H)", _c1, True)),
        ("envelope_inverse",),
    ),
    Statement(
        "C2",
        "|δ| ≥ |e|/(q+|e|) for a discrepancy e at probability q",
        "paper",
        "log(1+x) ≥ x/(1+x)",
        _c2,
        ("amplification",),
    ),
    Statement(
        "C3",
        "|δ| ≤ b ⇔ q(e^−b − 1) ≤ e ≤ q(e^b − 1); along the envelope it peaks and returns",
        "paper; the peak ours",
        "monotone in δ; h_b has slope −∞ at 1",
        _c3,
    ),
    Statement(
        "C4",
        "logit noise of range R keeps |δ| ≤ R at any probability; the exact range of δ",
        "ours",
        "e^−δ is an average of e^(Δ(w)−Δ(y))",
        check_parts(Part("δ within its exact range", _c4, True)),
    ),
    Statement(
        "D1",
        "δ² ≤ τ(H+ε) is tighter than √(τC) below H = C − ε and wider above",
        "paper",
        "monotone in H",
        _d1,
    ),
    Statement(
        "D2",
        "normalisers v and G, in units of H, stay below H",
        "ours",
        "B2, B3",
        _D2,
        ("entropy_quadratic", "envelope_convex"),
    ),
)
