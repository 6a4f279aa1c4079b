"""Mean squared error against threshold, the oracle threshold and each rule's regret (statement E3).

These rank *estimators of one step*. They do not rank rules in a training loop, where a rule also shapes the next
step's δ; `rank_correlation` measures how little of one carries over to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from entr_lab.errors import DataError, check_choice
from entr_lab.theory.masking import WEIGHTS, Enumeration, Moments, estimator_moments, mean_squared_error
from entr_lab.theory.scalars import Array

__all__ = ["Regret", "Sweep", "all_moments", "rank_correlation", "regret", "sweep"]

_CHUNK = 256  # positions at a time: the working set stays in cache and memory stays flat


class Sweep(NamedTuple):
    """Mean over positions of the squared error of one rule, at each threshold `[K]`."""

    thresholds: Array
    error: Array


class Regret(NamedTuple):
    """A rule's best threshold on a grid, the error there, at the default, and the excess of the default."""

    rule: str
    oracle: float
    oracle_error: float
    default_error: float
    regret: float


def _chunks(tokens: Enumeration) -> list[Enumeration]:
    count = len(tokens.mu)
    return [Enumeration(*(x[i : i + _CHUNK] for x in tokens)) for i in range(0, count, _CHUNK)]


def _moments(chunks: Sequence[Enumeration], rule: str, threshold: float) -> Moments:
    parts = [estimator_moments(c, WEIGHTS[rule].weight(c, threshold)) for c in chunks]
    return Moments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def all_moments(tokens: Enumeration, rules: Sequence[str] = tuple(WEIGHTS)) -> dict[str, Moments]:
    """Exact moments of every named rule at its default threshold, each `[B]`.

    Raises:
        UnknownNameError: a rule is not in `WEIGHTS`.
    """
    chunks = _chunks(tokens)
    return {r: _moments(chunks, check_choice("rule", r, WEIGHTS), WEIGHTS[r].default) for r in rules}


def sweep(tokens: Enumeration, rule: str, thresholds: Sequence[float], samples: int) -> Sweep:
    """Exact mean squared error of a rule's estimator from N samples, as a function of its threshold.

    Raises:
        UnknownNameError: the rule is not in `WEIGHTS`.
    """
    check_choice("rule", rule, WEIGHTS)
    chunks = _chunks(tokens)
    error = [float(np.mean(mean_squared_error(_moments(chunks, rule, t), samples))) for t in thresholds]
    return Sweep(np.asarray(thresholds, np.float64), np.asarray(error))


def regret(tokens: Enumeration, rule: str, thresholds: Sequence[float], samples: int) -> Regret:
    """The oracle threshold (the grid's and the default's best) and what the default loses against it; ≥ 0.

    Raises:
        UnknownNameError: the rule is not in `WEIGHTS`.
    """
    grid = sweep(tokens, rule, [*thresholds, WEIGHTS[check_choice("rule", rule, WEIGHTS)].default], samples)
    best = int(np.argmin(grid.error))
    oracle, default = float(grid.error[best]), float(grid.error[-1])
    return Regret(rule, float(grid.thresholds[best]), oracle, default, default - oracle)


def rank_correlation(error: Sequence[float], outcome: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Spearman correlation of one-step error and training outcome over rules, and its permutation p-value.

    A good predictor gives −1 where the outcome is a reward, and 1 where it is a loss.

    Raises:
        DataError: fewer than four rules, or lengths that differ.
    """
    if len(error) != len(outcome) or len(error) < 4:
        raise DataError(f"need at least four pairs of equal length, got {len(error)} and {len(outcome)}.")
    a, b = rankdata(error), rankdata(outcome)
    if np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        raise DataError("a constant column has no ranks; give results that differ.")
    rho = float(np.corrcoef(a, b)[0, 1])
    rng = np.random.default_rng(seed)
    shuffled = [abs(np.corrcoef(rng.permutation(a), b)[0, 1]) for _ in range(2000)]
    return rho, float((1 + np.sum(np.asarray(shuffled) >= abs(rho) - 1e-12)) / 2001)
