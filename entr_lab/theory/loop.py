"""A closed loop small enough to read: what each keep rule does to drift when nothing is to be learnt (statement G4).

A tabular softmax policy over independent positions is trained on samples of a *frozen* behaviour (staleness without
end), with advantages of pure noise (±1, independent of the token), so every movement is drift. A random force on all
logits stands for the effect of shared parameters. It shows escape and return, not learning.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from entr_lab.errors import check_choice, check_range
from entr_lab.theory.dispersion import entropy
from entr_lab.theory.divergence import normalise
from entr_lab.theory.masking import WEIGHTS, enumerate_tokens
from entr_lab.theory.scalars import Array

__all__ = ["LoopResult", "run_loop"]


class LoopResult(NamedTuple):
    """Per update: E_μ[δ²] `[K]` and the share of sampled tokens with weight 0 `[K]`; plus the final mean entropy."""

    second_moment: Array
    dropped: Array
    entropy: float


def run_loop(
    rule: str,
    *,
    seed: int,
    updates: int = 120,
    learning_rate: float = 1.0,
    force: float = 0.1,
    positions: int = 32,
    vocabulary: int = 8,
    samples: int = 8,
) -> LoopResult:
    """Train one rule at its default threshold; runs with one seed share their noise, so differences are paired.

    Statement G4 (measured): dropping only the inward tokens leaves every force outside the boundary pointing outwards,
    so δ runs away; dropping only the outward ones leaves a reflecting boundary. Source: ours.

    Raises:
        UnknownNameError: the rule is not in `WEIGHTS`.
        RangeError: fewer than one update.
    """
    weigh = WEIGHTS[check_choice("rule", rule, WEIGHTS)]
    check_range("updates", updates, low=1)
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.standard_normal((positions, vocabulary))
    logp_mu = normalise(logits)
    mu = np.exp(logp_mu)
    cumulative = np.cumsum(mu, axis=1)[:, None, :-1]
    rows = np.arange(positions)[:, None]
    moments, dropped = np.empty(updates), np.empty(updates)
    for k in range(updates):
        y = np.sum(rng.random((positions, samples, 1)) > cumulative, axis=-1)
        sign = rng.choice([-1.0, 1.0], size=y.shape)
        push = force * rng.standard_normal(logits.shape)
        logp_pi = normalise(logits)
        both = [enumerate_tokens(logp_mu, logp_pi, np.full_like(logits, s)) for s in (-1.0, 1.0)]
        minus, plus = (weigh.weight(tokens, weigh.default)[rows, y] for tokens in both)
        weight = np.where(sign > 0, plus, minus)
        step = np.zeros_like(logits)
        np.add.at(step, (rows, y), weight * sign)
        step -= both[0].pi * np.sum(weight * sign, axis=1, keepdims=True)
        moments[k] = float(np.mean(np.sum(mu * (logp_pi - logp_mu) ** 2, axis=1)))
        dropped[k] = float(np.mean(weight == 0.0))
        # The clip keeps an uncapped weight from ending the run in one step; it is the same for every rule.
        logits = logits + learning_rate * np.clip(step / samples, -1.0, 1.0) + push
    return LoopResult(moments, dropped, float(np.mean(entropy(normalise(logits)))))
