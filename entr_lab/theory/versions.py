"""Mixtures of weight versions: staleness parts and the exact split of a token's log-ratio (statements F1, F2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from entr_lab.errors import DataError, ShapeError
from entr_lab.theory.scalars import Array, ArrayLike

__all__ = ["RatioSplit", "split_log_ratio", "staleness_parts"]


class RatioSplit(NamedTuple):
    """The three parts of δ, each `[T]`; their sum is δ."""

    mismatch: Array
    intra_drift: Array
    inter_drift: Array


def staleness_parts(weight_version: npt.ArrayLike, target_version: int) -> tuple[int, int]:
    """(intra, inter) of one trajectory: v_last − v_first and v_target − v_last over its trainable tokens `[T]`.

    Statement F1: the two add up to the staleness of the first token. Source: paper.

    Raises:
        DataError: no tokens, versions that fall along the trajectory, or a version newer than the target.
    """
    v = np.asarray(weight_version)
    if v.size == 0 or np.any(np.diff(v) < 0) or v[-1] > target_version:
        raise DataError("weight_version must be non-empty, non-decreasing and at most target_version; check the trace.")
    return int(v[-1] - v[0]), int(target_version - v[-1])


def split_log_ratio(
    logp_mu: ArrayLike, weight_version: npt.ArrayLike, logp_by_version: ArrayLike, target_version: int
) -> RatioSplit:
    """δ = mismatch + intra drift + inter drift for each sampled token of one trajectory.

    Statement F2: with ℓ_v the trainer's log-probability at version v,
      mismatch = ℓ_{token} − log μ,  intra drift = ℓ_{last} − ℓ_{token},  inter drift = ℓ_{target} − ℓ_{last},
    and the three telescope to log π − log μ exactly (to rounding: each part is one subtraction). Source: ours.

    Args:
        logp_mu: `[T]` log-probabilities as the engine recorded them.
        weight_version: `[T]` version that produced each token.
        logp_by_version: `[K, T]` trainer log-probabilities, row k at version k.
        target_version: version that the update starts from.

    Raises:
        ShapeError: the arrays do not fit, or a version has no row.
        DataError: see `staleness_parts`.
    """
    staleness_parts(weight_version, target_version)
    recorded, table = np.asarray(logp_mu, np.float64), np.asarray(logp_by_version, np.float64)
    v = np.asarray(weight_version)
    if (
        table.ndim != 2
        or table.shape[1:] != recorded.shape
        or v.shape != recorded.shape
        or len(table) <= target_version
    ):
        raise ShapeError(
            f"logp_by_version must be [K > {target_version}, {recorded.size}] beside two [{recorded.size}] arrays, "
            f"got {table.shape}, {recorded.shape}, {v.shape}."
        )
    own = table[v, np.arange(v.size)]
    last, target = table[v[-1]], table[target_version]
    return RatioSplit(own - recorded, last - own, target - last)
