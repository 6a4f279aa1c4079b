"""Positions that look the same to the policy share one forward and one backward pass.

The window policy sees five small features, so the tokens of a batch repeat: groups share prompts, and most of a turn
is format. Distinct rows are found by direct addressing, in one pass and without a sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.sim.policy import PolicyShape

__all__ = ["DistinctRows", "Repeats"]


class Repeats(NamedTuple):
    """How the tokens of one run repeat.

    Args:
        rows: `[U, features]` distinct rows, in the order of their first token.
        place: `[N]` int64, which distinct row each token has.
        seen: `[N]` int64, how many distinct rows the tokens up to and including each one have.
    """

    rows: Tensor
    place: Tensor
    seen: NDArray[np.int64]


class DistinctRows:
    """Finds repeated feature rows of one policy shape."""

    def __init__(self, shape: PolicyShape) -> None:
        sizes = np.array(shape.features, dtype=np.int64)
        self._strides = np.concatenate([[1], np.cumprod(sizes[:-1])])
        self._base = int(np.dot(self._strides, shape.offsets))
        # Half the memory of a native integer: the table is larger than a core's cache.
        self._first = np.zeros(int(sizes.prod()), dtype=np.int32)

    def of(self, rows: Tensor) -> Repeats:
        """Return the repeats of `rows` `[N, features]`, indices into the policy's table."""
        key = rows.numpy() @ self._strides - self._base
        number = np.arange(len(key), dtype=np.int32)
        # The last write to a place stays: written backwards, it is the first token. Nothing is read but what was
        # written just now, so the table needs no clearing.
        self._first[key[::-1]] = number[::-1]
        first = self._first.take(key)
        is_first = first == number
        seen = is_first.cumsum()
        distinct = rows.numpy().take(np.flatnonzero(is_first), axis=0)
        return Repeats(torch.from_numpy(distinct), torch.from_numpy(seen.take(first) - 1), seen)
