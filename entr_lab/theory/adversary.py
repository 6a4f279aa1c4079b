"""The adversary: a search for the instance that brings an inequality closest to failing.

An instance is a position: μ, a logit drift Δ, one auxiliary number per token (an advantage, or an error of the record)
and a few scalars. The search starts from the structured extremes (two-point, fair coin, uniform, one-hot limit, heavy
tail) and from random restarts, and climbs the ratio left/right by coordinate steps whose length adapts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from entr_lab.theory.divergence import normalise
from entr_lab.theory.scalars import Array

__all__ = ["VOCABULARY", "Position", "Ratio", "Worst", "decode", "large_positions", "search", "starting_points"]

VOCABULARY = 5
_POPULATION = 160
_TOP_LOGIT = 650.0
_TOP_DRIFT = 60.0


class Position(NamedTuple):
    """A batch of instances: `logp_mu`, `drift`, `aux` are `[P, V]`, `scalars` is `[P, S]` in (0, 1)."""

    logp_mu: Array
    drift: Array
    aux: Array
    scalars: Array


Ratio: TypeAlias = Callable[[Position], Array]


class Worst(NamedTuple):
    """The largest ratio found, its instance (`P = 1`), and how many instances were tried."""

    ratio: float
    instance: Position
    tried: int


def decode(points: Array, scalars: int) -> Position:
    """Read search points `[P, 3V + S]` as instances; every coordinate is bounded smoothly or clipped."""
    V = VOCABULARY
    logits = np.clip(points[:, :V], -_TOP_LOGIT, 0.0)
    drift = np.clip(points[:, V : 2 * V], -_TOP_DRIFT, _TOP_DRIFT)
    unit = 1.0 / (1.0 + np.exp(-np.clip(points[:, 3 * V : 3 * V + scalars], -40.0, 40.0)))
    return Position(normalise(logits), drift, points[:, 2 * V : 3 * V], unit)


def starting_points(rng: np.random.Generator, scalars: int) -> Array:
    """Structured extremes times structured drifts, then random restarts, `[P, 3V + S]`."""
    V = VOCABULARY
    absent = np.full(V, -_TOP_LOGIT)
    bases = [np.zeros(V), -np.arange(V) * 1.5, np.array([0.0, *[-30.0] * (V - 1)])]
    # 0.262: the rarer of two tokens has mass e^{−b} for ENTR at τ = 1, ε = 0.01, so the target can fill the boundary.
    for gap in (0.0, 0.262, 0.7, 2.0, 5.0, 9.0, 20.0):
        bases.append(np.where(np.arange(V) < 2, [0.0, -gap, *[0.0] * (V - 2)], absent))
    drifts = [np.where(np.arange(V) == j, size, 0.0) for j in (0, 1) for size in (1e-3, 0.5, 3.0, 12.0, 40.0, -1.0)]
    points = [
        np.concatenate([b, d, rng.standard_normal(V), 2.0 * rng.standard_normal(scalars)])
        for b in bases
        for d in drifts
    ]
    while len(points) < _POPULATION:
        scale = 10.0 ** rng.uniform(-3, 1)
        parts = [-rng.exponential(3.0, V), scale * rng.standard_normal(V), rng.standard_normal(V)]
        points.append(np.concatenate([*parts, 3.0 * rng.standard_normal(scalars)]))
    return np.array(points)


def search(
    ratio: Ratio,
    *,
    scalars: int = 0,
    seed: int = 0,
    rounds: int = 120,
    deadline: float = np.inf,
    enough: float = np.inf,
) -> Worst:
    """Climb `ratio` from every starting point; the same seed gives the same answer unless the deadline cuts it.

    Args:
        ratio: left side over right side of an inequality, `[P]`; above 1 is a violation, NaN is ignored.
        scalars: how many numbers in (0, 1) an instance carries.
        seed: of the restarts and the steps.
        rounds: steps of every climber.
        deadline: `time.monotonic()` value after which no further round starts.
        enough: after a third of the rounds, stop once the ratio is above this and at most 1.
    """
    rng = np.random.default_rng(seed)
    points = starting_points(rng, scalars)
    value = _evaluate(ratio, points, scalars)
    step = np.full(len(points), 1.0)
    tried = len(points)
    for round_ in range(rounds):
        if time.monotonic() > deadline or (3 * round_ >= rounds and enough < float(np.max(value)) <= 1.0):
            break
        if round_ % 40 == 39:  # restart the worse half near the better half
            order = np.argsort(value)
            weak, strong = order[: len(order) // 2], order[len(order) // 2 :]
            points[weak], value[weak] = points[strong], value[strong]
            step[weak] = 1.0
        active = rng.random(points.shape) < 2.0 / points.shape[1]
        moved = points + np.where(active, step[:, None] * rng.standard_normal(points.shape), 0.0)
        shrink = rng.random(len(points)) < 0.2  # towards small drifts, where many inequalities become equalities
        V = VOCABULARY
        moved[shrink, V : 2 * V] *= rng.uniform(0.3, 1.0, (int(shrink.sum()), 1))
        found = _evaluate(ratio, moved, scalars)
        better = found > value
        points[better], value[better] = moved[better], found[better]
        step = np.clip(np.where(better, step * 1.6, step * 0.93), 1e-6, 8.0)
        tried += len(points)
    best = int(np.argmax(value))
    return Worst(float(value[best]), decode(points[best : best + 1], scalars), tried)


def _evaluate(ratio: Ratio, points: Array, scalars: int) -> Array:
    with np.errstate(all="ignore"):
        value = ratio(decode(points, scalars))
    return np.asarray(np.where(np.isnan(value), -np.inf, value))


def large_positions(rng: np.random.Generator, V: int, scalars: int) -> Position:
    """Five structured positions over a vocabulary of `V`, the ends of the range that a trainer meets."""
    zipf = -1.2 * np.log(np.arange(1, V + 1))
    one_hot = np.where(np.arange(V) == 0, 0.0, -690.0)
    half = np.where(np.arange(V) == 0, 0.0, -np.log(V - 1.0))
    logits = np.stack([np.zeros(V), zipf, one_hot, half, 3.0 * rng.standard_normal(V)])
    drift = np.stack([rng.standard_normal(V), *(np.where(np.arange(V) == 0, s, 0.0) for s in (5.0, -5.0, 1.0))])
    drift = np.vstack([drift, 0.1 * rng.standard_normal((1, V))])
    return Position(normalise(logits), drift, rng.standard_normal((5, V)), rng.random((5, scalars)))
