"""95 % t-intervals over seeds, and paired differences at equal seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from entr_lab.errors import ShapeError

__all__ = ["Interval", "mean_interval", "paired_difference"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its half-width; the half-width is NaN where one observation gives none.

    Args:
        mean: mean over the usable observations; NaN if there are none.
        half: half-width of the two-sided interval.
        n: number of usable observations.
    """

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        """Lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end."""
        return self.mean + self.half

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside; False where there is no interval."""
        return bool(self.low > 0.0 or self.high < 0.0)

    def __str__(self) -> str:
        half = "–" if np.isnan(self.half) else f"{self.half:.3f}"
        return f"{self.mean:.3f} ± {half}"

    def signed(self) -> str:
        """Return the text with a sign, for differences."""
        return f"{self.mean:+.3f}" + str(self)[str(self).index(" ±") :]


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return mean and Student-t half-width of `values`, `[n]`, NaN left out."""
    usable: NDArray[np.float64] = np.asarray(values, dtype=np.float64).ravel()
    usable = usable[np.isfinite(usable)]
    n = len(usable)
    if n == 0:
        return Interval(float("nan"), float("nan"), 0)
    if n == 1:
        return Interval(float(usable[0]), float("nan"), 1)
    quantile = float(stdtrit(n - 1, 0.5 + confidence / 2))  # scipy.stats would take 1.5 s to import
    return Interval(float(usable.mean()), quantile * float(usable.std(ddof=1)) / n**0.5, n)


def paired_difference(left: ArrayLike, right: ArrayLike) -> Interval:
    """Return the interval of left − right at equal seeds; a seed missing on either side is left out.

    Raises:
        ShapeError: the two do not have one value per seed each.
    """
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ShapeError(f"paired values must be [n_seeds] on both sides, got {a.shape} and {b.shape}.")
    return mean_interval(a - b)
