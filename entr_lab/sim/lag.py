"""Exact lag: which weight version samples which token.

At update v, token t of a rollout of T tokens is sampled by version

    version(v, t) = max(0, v − lag(t)),   lag(t) = inter + intra − floor((intra + 1) t / T)

so the first token is inter + intra versions old, the last `inter`: the same law as a queue of constant depth with
`intra` weight updates in flight, without a queue. A table of lags per rollout (from a plan's schedule, say) may take
the place of this one; its rollouts are consumed in order, round and round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import ShapeError, check_range

__all__ = ["MAX_LAG", "LagTable", "exact_lag", "split_staleness"]

MAX_LAG = 4096
"""Versions; every one of them is kept in memory."""


def split_staleness(staleness: int) -> tuple[int, int]:
    """Split a total staleness into (inter, intra): 27 % within the trajectory, as 30 = 22 + 8.

    Raises:
        RangeError: `staleness` is negative.
    """
    check_range("staleness", staleness, low=0, high=MAX_LAG)
    intra = round(0.27 * staleness)
    return staleness - intra, intra


@dataclass(frozen=True, slots=True, eq=False)
class LagTable:
    """Lag of every token.

    Args:
        lags: `[M, T]` int64 ≥ 0, versions between sampling and update; update v uses rows v·R … v·R + R − 1 mod M.

    Raises:
        ShapeError: not a two-dimensional integer table.
        RangeError: a lag is negative.
    """

    lags: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.lags.ndim != 2 or self.lags.size == 0 or self.lags.dtype.kind != "i":
            raise ShapeError(
                f"lags must be an integer table [rollouts, tokens], got {self.lags.dtype} {list(self.lags.shape)}."
            )
        check_range("lag", int(self.lags.min()), low=0)
        check_range("lag", int(self.lags.max()), low=0, high=2 * MAX_LAG)

    @property
    def depth(self) -> int:
        """Versions that must be remembered: the largest lag + 1."""
        return int(self.lags.max()) + 1

    def versions(self, update: int, rollouts: int) -> NDArray[np.int64]:
        """Return the version of every token of one update, `[1, T]` if all its rollouts share one, else `[R, T]`."""
        lags = self.lags
        if len(lags) > 1:
            lags = lags[(update * rollouts + np.arange(rollouts)) % len(lags)]
        return np.maximum(0, update - lags)


def exact_lag(inter: int, intra: int, horizon: int) -> LagTable:
    """Return the homogeneous table `[1, T]` of the module's formula.

    Raises:
        RangeError: a lag is negative or the horizon below 1.
    """
    check_range("inter", inter, low=0, high=MAX_LAG)
    check_range("intra", intra, low=0, high=MAX_LAG)
    check_range("horizon", horizon, low=1)
    tokens = np.arange(horizon, dtype=np.int64)
    return LagTable((inter + intra - (intra + 1) * tokens // horizon)[None])
