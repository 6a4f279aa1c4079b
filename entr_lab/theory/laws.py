"""Laws that are measured, not proved: slopes on logarithmic axes, each with a 95 % interval (A2, B1, B5)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from entr_lab.theory.dispersion import entropy
from entr_lab.theory.divergence import normalise, second_moment, tilt
from entr_lab.theory.scalars import Array, ArrayLike

__all__ = ["ScalingLaw", "cubic_slope", "fit_slope", "lag_exponent", "llm_like_positions", "scaling_law"]

_SEEDS = 8


class ScalingLaw(NamedTuple):
    """Slopes of RMS δ and of E|δ| against H, with half-widths of their 95 % intervals over seeds."""

    rms: float
    rms_half: float
    mean_abs: float
    mean_abs_half: float


def fit_slope(x: ArrayLike, y: ArrayLike) -> float:
    """Least-squares slope of log y against log x."""
    lx, ly = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    lx = lx - lx.mean()
    return float(np.sum(lx * ly) / np.sum(lx * lx))


def _interval(values: ArrayLike) -> tuple[float, float]:
    v = np.asarray(values, np.float64)
    half = student.ppf(0.975, len(v) - 1) * v.std(ddof=1) / np.sqrt(len(v))
    return float(v.mean()), float(half)


def cubic_slope(*, seed: int = 0) -> tuple[float, float, float]:
    """Slope of |KL − ½E δ²| against the radius: (mean, half-width, slope for a fair coin).

    |KL − ½E δ²| = |E δ³|/6 + O(M⁴), so the slope is 3 where the third moment of the drift does not vanish and 4 for a
    symmetric one. The difference is summed as E[δ²(φ(δ) − ½)] from φ's own series, since subtracting would leave noise.
    """
    radii = np.geomspace(1e-4, 1e-2, 9)
    rng = np.random.default_rng(seed)
    slopes = []
    for _ in range(_SEEDS):
        logp = normalise(rng.standard_normal(12))
        slopes.append(fit_slope(radii, _cubic_gap(logp, rng.exponential(1.0, 12), radii)))
    fair = fit_slope(radii, _cubic_gap(np.log([0.5, 0.5]), np.array([1.0, -1.0]), radii))
    return *_interval(slopes), fair


def _cubic_gap(logp: Array, direction: Array, radii: Array) -> Array:
    delta, _ = tilt(logp, radii[:, None] * direction)
    # g(δ) − δ²/2 = δ³ (1/6 + δ/24 + δ²/120 + …)
    cube = delta**3 * (1 / 6 + delta * (1 / 24 + delta * (1 / 120 + delta / 720)))
    return np.asarray(np.abs(np.sum(np.exp(logp) * cube, axis=-1)))


def llm_like_positions(rng: np.random.Generator, count: int, vocabulary: int) -> Array:
    """Log-probabilities `[B, V]` with many confident positions: a random tail, eight candidates, random confidence."""
    logits = 1.5 * rng.standard_normal((count, vocabulary))
    confident = rng.random(count) < 0.8
    c = np.clip(
        np.where(confident, 9 + 3 * rng.standard_normal(count), 2 + np.abs(rng.standard_normal(count))), 0.3, 20
    )
    gaps = c[:, None] * (0.6 + 0.4 * rng.exponential(1.0, (count, 8)))
    gaps[:, 0] = 0.0
    top = np.log(np.sum(np.exp(logits), axis=-1)) + 3.0 + 0.6 * c
    logits[:, :8] = top[:, None] - gaps
    return normalise(logits)


def scaling_law(*, seed: int = 0, vocabulary: int = 512, positions: int = 600) -> ScalingLaw:
    """Slopes of binned RMS δ and E|δ| against H under shared-feature drift Δ = W u (a weight perturbation).

    RMS δ ∝ H^½ and E|δ| ∝ H: the square-root law is a law of the RMS, because a dominant token has
    |δ| ~ (1 − μ_max) R while the RMS is carried by the rare tokens, E δ² ~ (1 − μ_max) R². Expectations are exact.
    """
    rms, mean_abs = [], []
    for k in range(_SEEDS):
        rng = np.random.default_rng((seed, k))
        logp = llm_like_positions(rng, positions, vocabulary)
        features = rng.standard_normal((vocabulary, 48)) / np.sqrt(48)
        delta, _ = tilt(logp, 0.3 * rng.standard_normal((positions, 48)) @ features.T)
        H = entropy(logp)
        square = second_moment(logp, delta)
        absolute = np.sum(np.exp(logp) * np.abs(delta), axis=-1)
        edges = np.quantile(H[H > 1e-4], np.linspace(0, 1, 13))
        bins = np.clip(np.digitize(H, edges) - 1, -1, 11)
        centre = [np.exp(np.mean(np.log(H[bins == i]))) for i in range(12)]
        rms.append(fit_slope(centre, [np.sqrt(np.mean(square[bins == i])) for i in range(12)]))
        mean_abs.append(fit_slope(centre, [np.mean(absolute[bins == i]) for i in range(12)]))
    return ScalingLaw(*_interval(rms), *_interval(mean_abs))


def lag_exponent(kind: str, *, seed: int = 0) -> tuple[float, float]:
    """Exponent of RMS δ against lag, and half-width; "walk": independent steps (½), "ballistic": one direction (1)."""
    lags = np.arange(1, 31)
    slopes = []
    for k in range(_SEEDS):
        rng = np.random.default_rng((seed, k))
        logp = llm_like_positions(rng, 200, 64)
        features = rng.standard_normal((64, 16)) / 4.0
        steps = (
            rng.standard_normal((30, 200, 16))
            if kind == "walk"
            else np.tile(rng.standard_normal((200, 16)), (30, 1, 1))
        )
        path = 0.01 * np.cumsum(steps, axis=0) @ features.T
        moments = [np.mean(second_moment(logp, tilt(logp, path[n - 1])[0])) for n in lags]
        slopes.append(0.5 * fit_slope(lags, moments))
    return _interval(slopes)
