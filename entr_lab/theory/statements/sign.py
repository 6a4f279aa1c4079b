"""Sections F and G: versions, and why a symmetric mask hides drift."""

from __future__ import annotations

import numpy as np

from entr_lab.theory.adversary import Position
from entr_lab.theory.boundary import entr_boundary
from entr_lab.theory.divergence import tilt
from entr_lab.theory.masking import EPS, WEIGHTS, Enumeration, enumerate_tokens, estimator_moments, is_outward
from entr_lab.theory.restoring import Network, own_step, random_network
from entr_lab.theory.scalars import Array, xexp
from entr_lab.theory.statements.base import Finding, Part, Search, Statement, check_parts, measured, ratio_of
from entr_lab.theory.statements.masking import largest_gradient, loop_outcomes, tokens_of
from entr_lab.theory.versions import split_log_ratio, staleness_parts

__all__ = ["STATEMENTS"]


def _f1(how: Search) -> list[Finding]:
    rng = np.random.default_rng(how.seed)
    wrong = 0
    for _ in range(500):
        v = np.sort(rng.integers(0, 20, rng.integers(1, 30)))
        intra, inter = staleness_parts(v, 25)
        wrong += intra + inter != 25 - v[0] or intra < 0 or inter < 0
    return [
        measured("intra + inter = staleness of the first token", float(wrong), 0.0, 0.0, tried=500, kind="identity")
    ]


def _f2(how: Search) -> list[Finding]:
    rng = np.random.default_rng(how.seed)
    gap = 0.0
    for _ in range(200):
        v = np.sort(rng.integers(0, 20, 50))
        table = -rng.exponential(3.0, (26, 50))
        recorded = table[v, np.arange(50)] + 0.01 * rng.standard_normal(50)
        parts = split_log_ratio(recorded, v, table, 25)
        gap = max(gap, float(np.max(np.abs(sum(parts) - (table[25] - recorded)))))
    return [measured("mismatch + intra + inter = δ", gap, 0.0, 1e-12, tried=10_000, kind="identity")]


def _g1(how: Search) -> list[Finding]:
    rng = np.random.default_rng(how.seed)
    wrong, relative = 0, 0.0
    for k in range(300):
        net, x = random_network(rng), rng.standard_normal(5)
        delta, advantage = rng.normal(0, 2), rng.normal(0, 1)
        if abs(delta * advantage) < 0.05:
            continue
        P = Network(*(rng.uniform(0.1, 10.0, p.shape) for p in net)) if k % 2 else None
        step = own_step(
            net,
            x,
            int(rng.integers(6)),
            log_ratio=delta,
            advantage=advantage,
            weight=1.0,
            learning_rate=1e-7,
            preconditioner=P,
        )
        wrong += (step.actual > 0) != (delta * advantage > 0)
        relative = max(relative, abs(step.actual / step.predicted - 1))
    note = (
        f"first order against a finite step of 1e-7: within {relative:.0e}; half of them with a diagonal preconditioner"
    )
    return [measured("sign of the own step = sign of A δ", float(wrong), 0.0, 0.0, tried=300, note=note)]


def _certificates(t: Enumeration) -> tuple[Array, Array]:
    """G2's certificate and the symmetric rule's, each `[P]`."""
    b = entr_boundary(t.entropy, tau=1.0, eps=EPS)
    out, outward = np.abs(t.delta) > b, is_outward(t.delta, t.advantage)
    shrink = np.where(out & ~outward & (t.delta > b), -np.expm1(np.minimum(b - t.delta, 0.0)), 0.0)
    largest = largest_gradient(t)
    mine = largest * np.sum(t.pi * (out & outward) + t.pi * shrink, axis=-1)
    return mine, largest * np.sum(t.pi * out, axis=-1)


def _g2_bias(p: Position) -> Array:
    t = tokens_of(p)
    bias = np.sqrt(estimator_moments(t, WEIGHTS["entr-outward"].weight(t, 1.0)).bias_sq)
    return ratio_of(bias, _certificates(t)[0], 1e-6)


def _g2_order(p: Position) -> Array:
    return ratio_of(*_certificates(tokens_of(p)))


def _g3_exact(p: Position) -> Array:
    t = tokens_of(p)
    second = estimator_moments(t, WEIGHTS["entr-outward"].weight(t, 1.0)).weight_sq
    return ratio_of(second, xexp(entr_boundary(t.entropy[:, 0], tau=1.0, eps=EPS)))


def _g3_recorded(p: Position) -> Array:
    """Every token inward (A < 0), the record off by any factor: the auxiliary numbers are its error in nats / 10."""
    delta, _ = tilt(p.logp_mu, p.drift)
    record = p.logp_mu + np.clip(10.0 * p.aux, -300.0, 300.0)
    t = enumerate_tokens(p.logp_mu, p.logp_mu + delta, -np.ones_like(delta), record)
    second = estimator_moments(t, WEIGHTS["entr-outward"].weight(t, 1.0)).weight_sq
    return ratio_of(second, xexp(2.0 * entr_boundary(t.entropy[:, 0], tau=1.0, eps=EPS)))


def _g4(how: Search) -> list[Finding]:
    outcome = loop_outcomes(how.seed)
    anti, mask, outward = (outcome[r] for r in ("entr-inward-dropped", "entr", "entr-outward"))
    note = (
        f"final E δ², mean of {len(mask)} paired seeds: inward dropped {anti.mean():.1f}, symmetric {mask.mean():.1f}, "
        f"outward + cap {outward.mean():.1f}, keep-all {outcome['keep-all'].mean():.1f}; nothing is learnt in this loop"
    )
    apart = float(np.min(anti / mask))
    held = bool(np.all(anti > mask) and np.all(mask > outward))
    return [
        Finding("inward dropped > symmetric > outward", "measured", apart, apart - 1, held, False, len(mask) * 3, note)
    ]


STATEMENTS = (
    Statement("F1", "intra + inter lag = staleness of the first token", "paper", "definitions", _f1),
    Statement("F2", "δ = mismatch + intra drift + inter drift, exactly", "ours", "telescoping sum", _f2),
    Statement(
        "G1",
        "a sample's own step changes its δ²/2 by lr c A δ k + O(lr²), k ≥ 0",
        "ours",
        "dδ/dθ = ∇log π(y)",
        _g1,
    ),
    Statement(
        "G2",
        "outward drop + cap: ‖bias‖ ≤ its certificate ≤ the symmetric rule's",
        "ours",
        "E1 with w = r min(1, e^(b−δ))",
        check_parts(
            Part("‖bias‖ ≤ certificate", _g2_bias, True), Part("certificate ≤ symmetric certificate", _g2_order, True)
        ),
    ),
    Statement(
        "G3",
        "outward drop + cap: E_μ[w²] ≤ e^b, and ≤ e^2b under any recording error",
        "ours",
        "w ≤ e^b and w ≤ r",
        check_parts(Part("exact record: ≤ e^b", _g3_exact, True), Part("any record: ≤ e^2b", _g3_recorded, True)),
    ),
    Statement(
        "G4",
        "negative control: dropping the inward tokens only runs away",
        "ours (measured)",
        "every force outside the boundary points outwards",
        _g4,
    ),
)
