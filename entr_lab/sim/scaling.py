"""How the size of δ grows with the behaviour entropy: log-log slope with a bootstrap interval.

The paper's √H law says RMS δ ∝ H^½. It is a law for √E[δ²], not for E|δ|: a confident position has a small
|δ| on the token that it nearly always picks and a large one on the rest, and only the square weighs the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
from scipy import stats
from torch import Tensor

from entr_lab.errors import DataError, ShapeError, check_choice, check_range

__all__ = ["Estimate", "fit_slope", "seed_estimate"]

_BLOCKS: Final = 256
"""Blocks of positions that the bootstrap resamples; the interval's own noise falls as 1/√(2·blocks), 4 %."""
_BINS_PER_DECADE: Final = 6
_MIN_BIN_SHARE: Final = 1e-3
"""A bin with fewer of the positions is left out, as its mean would be a few positions."""


@final
@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval; the ends are NaN where one seed cannot give an interval."""

    value: float
    low: float
    high: float


def seed_estimate(values: Sequence[float]) -> Estimate:
    """Return the mean over seeds with its 95 % Student-t interval.

    Raises:
        DataError: no values.
    """
    if len(values) == 0:
        raise DataError("an estimate over seeds needs at least one value, got none; give a seed.")
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return Estimate(mean, mean - half, mean + half)


def fit_slope(
    entropy: Tensor,
    moment: Tensor,
    *,
    kind: Literal["rms", "abs"],
    low: float,
    high: float,
    rng: np.random.Generator,
    resamples: int = 400,
) -> Estimate:
    """Return the least-squares slope of log size against log H over equal bins of log H.

    The size of a bin is √(mean moment) for `rms` and mean moment for `abs`, at the bin's mean H.
    The interval is the bootstrap's 2.5 and 97.5 % quantiles, resampling blocks of neighbouring positions.

    Args:
        entropy: `[N]` H of the positions, nats.
        moment: `[N]` E_μ[δ²] for `rms`, E_μ|δ| for `abs`.
        kind: which of the two.
        low: smallest H used, positive.
        high: largest H used.
        rng: source of the resamples.
        resamples: bootstrap samples.

    Raises:
        ShapeError: the two columns differ, or are not `[N]`.
        DataError: fewer than three bins hold positions.
    """
    check_choice("slope kind", kind, ("rms", "abs"))
    check_range("low", low, low=0.0, low_open=True)
    check_range("high", high, low=low, low_open=True)
    check_range("resamples", resamples, low=1)
    if entropy.ndim != 1 or entropy.shape != moment.shape:
        raise ShapeError(
            f"entropy and moment must share a shape [N], got {list(entropy.shape)} and {list(moment.shape)}; "
            f"give one value of each per position."
        )
    sums = _block_sums(entropy.double().numpy(), moment.double().numpy(), low, high)
    used = sums[:, :, 0].sum(0) >= max(2.0, _MIN_BIN_SHARE * entropy.numel())
    if used.sum() < 3:
        raise DataError(
            f"a slope needs 3 filled bins of H in [{low:g}, {high:g}], got {used.sum()}; use more positions."
        )
    sums = sums[:, used]
    weights = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=resamples).astype(np.float64)
    slopes = _slopes(np.einsum("rb,bkc->rkc", weights, sums), kind)
    ends = np.nanquantile(slopes, [0.025, 0.975])
    return Estimate(float(_slopes(sums.sum(0)[None], kind)[0]), float(ends[0]), float(ends[1]))


def _block_sums(entropy: np.ndarray, moment: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return per block and bin: count, ΣH, Σ moment; `[blocks, bins, 3]`."""
    n_bins = max(3, round(_BINS_PER_DECADE * math.log10(high / low)))
    inside = (entropy >= low) & (entropy < high)
    block = (np.arange(len(entropy)) * min(_BLOCKS, len(entropy)) // len(entropy))[inside]
    h, m = entropy[inside], moment[inside]
    bins = np.minimum((np.log(h / low) / math.log(high / low) * n_bins).astype(np.int64), n_bins - 1)
    cell = block * n_bins + bins
    n_blocks = min(_BLOCKS, len(entropy))
    size = n_blocks * n_bins
    columns = [np.bincount(cell, weights=w, minlength=size) for w in (np.ones_like(h), h, m)]
    return np.stack(columns, -1).reshape(n_blocks, n_bins, 3)


def _slopes(sums: np.ndarray, kind: str) -> np.ndarray:
    """Return one slope per leading row of `[R, bins, 3]` sums; bins that a resample left empty are skipped."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(sums[..., 1] / sums[..., 0])
        y = np.log(sums[..., 2] / sums[..., 0]) * (0.5 if kind == "rms" else 1.0)
    weight = (np.isfinite(x) & np.isfinite(y)).astype(np.float64)
    x, y = np.where(weight > 0, x, 0.0), np.where(weight > 0, y, 0.0)
    total = weight.sum(-1, keepdims=True)
    dx = (x - (weight * x).sum(-1, keepdims=True) / total) * weight
    slopes: np.ndarray = (dx * y).sum(-1) / (dx * dx).sum(-1)
    return slopes
