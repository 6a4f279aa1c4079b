"""Who carries the log-ratio: moments of δ per position, and the table of low-entropy outliers.

At a confident position the token that is nearly always picked barely moves, and the rest, once in hundreds of
tokens, moves by many standard deviations. That is what a constant threshold on |δ| cannot see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from entr_lab.sim.logits import entropy

__all__ = ["GROUPS", "Moments", "OutlierCell", "Positions"]

_CONFIDENT: Final = 0.1
"""Below this H (nats) a position counts as confident."""
_OPEN: Final = 0.5
"""Above this H a position counts as an open choice."""

GROUPS: Final = ("H < 0.1, dominant", "H < 0.1, not dominant", "H > 0.5")
"""Groups of tokens of the outlier table."""


@final
@dataclass(frozen=True, slots=True)
class OutlierCell:
    """One group of tokens under one cause; expectations over y ~ μ."""

    share: float
    """Probability that a token belongs to the group."""
    mean_abs: float
    """Mean |δ| within the group, nats; NaN if the group is empty."""
    mean_z: float
    """Mean |δ|/√H within the group: ENTR's score without its floor ε."""


_COLUMNS: Final = ("entropy", "square", "absolute", "dominant_prob", "dominant_absolute")


@final
@dataclass(frozen=True, slots=True)
class Moments:
    """Exact moments of δ at each position, `[N]` float64."""

    entropy: Tensor
    """H of μ."""
    square: Tensor
    """E_μ[δ²]."""
    absolute: Tensor
    """E_μ|δ|."""
    dominant_prob: Tensor
    """μ of the likeliest token."""
    dominant_absolute: Tensor
    """Its share of E_μ|δ|."""

    @staticmethod
    def empty(positions: int) -> Moments:
        """Return room for moments, to be filled chunk by chunk.

        Small results that outlive a chunk, allocated between its large temporaries, would keep the allocator from
        reusing the temporaries' memory: gigabytes on glibc before 2.38.
        """
        return Moments(*torch.empty(len(_COLUMNS), positions, dtype=torch.float64))

    def fill(self, start: int, part: Moments) -> None:
        """Copy the moments of neighbouring positions to `start` and after."""
        for name in _COLUMNS:
            column: Tensor = getattr(part, name)
            getattr(self, name)[start : start + len(column)] = column

    @staticmethod
    def concatenate(parts: Sequence[Moments]) -> Moments:
        """Join moments of different positions."""
        return Moments(*(torch.cat([getattr(part, name) for part in parts]) for name in _COLUMNS))

    @property
    def rms(self) -> float:
        """√E[δ²] over positions and tokens, nats."""
        return math.sqrt(self.square.mean().item())

    def outliers(self) -> dict[str, OutlierCell]:
        """Return the cell of each of `GROUPS`."""
        confident, is_open = self.entropy < _CONFIDENT, self.entropy > _OPEN
        rest = (1 - self.dominant_prob, self.absolute - self.dominant_absolute)
        return {
            GROUPS[0]: self._cell(confident, self.dominant_prob, self.dominant_absolute),
            GROUPS[1]: self._cell(confident, *rest),
            GROUPS[2]: self._cell(is_open, torch.ones_like(self.entropy), self.absolute),
        }

    def _cell(self, where: Tensor, mass: Tensor, absolute: Tensor) -> OutlierCell:
        total = mass[where].sum().item()
        if total == 0:
            return OutlierCell(0.0, math.nan, math.nan)
        # H and |δ| vanish together at a certain position, which then has nothing to add
        z = torch.where(self.entropy > 0, absolute * self.entropy.rsqrt(), 0.0)
        return OutlierCell(
            share=total / len(self.entropy),
            mean_abs=absolute[where].sum().item() / total,
            mean_z=z[where].sum().item() / total,
        )


@final
@dataclass(frozen=True, slots=True)
class Positions:
    """What the moments of several causes share at the same positions; build it with `at`."""

    probs: Tensor
    """μ, `[N, V]` float64."""
    entropy: Tensor
    """H, `[N]`."""
    likeliest: Tensor
    """Token id of the largest μ, `[N, 1]`."""

    @staticmethod
    def at(log_probs: Tensor) -> Positions:
        """Take μ from its logarithm, `[N, V]` float64."""
        return Positions(log_probs.exp(), entropy(log_probs), log_probs.argmax(-1, keepdim=True))

    def moments(self, delta: Tensor) -> Moments:
        """Return the moments of δ(y), `[N, V]`, over y ~ μ, by enumeration of the vocabulary."""
        size = delta.abs()
        weighted = self.probs * size
        return Moments(
            entropy=self.entropy,
            square=torch.linalg.vecdot(weighted, size),
            absolute=weighted.sum(-1),
            dominant_prob=self.probs.gather(-1, self.likeliest).squeeze(-1),
            dominant_absolute=weighted.gather(-1, self.likeliest).squeeze(-1),
        )
