"""What a keep rule is: a pure function from a token batch to a boolean mask, declared by a frozen dataclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import ClassVar, Final, Self

import torch
from torch import Tensor

from entr_lab.errors import ConfigError, check_member, check_range
from entr_lab.tokens import Column, TokenBatch

__all__ = ["MAX_PARAMETER", "BoundedRule", "KeepRule", "Reduce", "Scope", "Side", "finite", "local"]

_BLOCK: Final = 1 << 17
"""Tokens per block on a CPU, all runs together: half a MiB a float32 column. Measured on an EPYC with 512 KiB of L2 a
core: 64 Ki and 256 Ki tokens are 10 % slower, 16 Ki 80 %, since a pass over a small block costs mostly its launch."""

_RECORDED: Final = frozenset({Column.COLLISION_MU, Column.LOGP_PROX})
"""Optional columns that a rule drops a token for where they are not finite, if it needs them."""

MAX_PARAMETER: Final = 1e18
"""Largest threshold, τ or ε: products of two of them stay below the largest float32, 3e38."""

Reduce = Callable[[Tensor], Tensor]
"""Elementwise sum of a tensor over the processes of a job; `local` in one process, an all-reduce in a job."""


def finite(values: Tensor) -> Tensor:
    """Return where `values` is finite, in a third of the time of `isfinite` on a CPU."""
    return values.abs() < inf


def local(total: Tensor) -> Tensor:
    """Return the tensor as it is: one process holds the whole batch."""
    return total


class Scope(StrEnum):
    """What the decision on one token may depend on."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    BATCH = "batch"


class Side(StrEnum):
    """Which tokens beyond the boundary are dropped.

    `symmetric`: all. `outward`: only those with A·δ > 0, whose own gradient pushes δ further out; inward tokens
    (A·δ ≤ 0) stay and bring δ back (ours; theory statement G1).
    """

    SYMMETRIC = "symmetric"
    OUTWARD = "outward"

    def __repr__(self) -> str:
        return repr(self.value)  # so that the repr of a rule builds the rule again


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRule(ABC):
    """A pure, deterministic decision per token; its fields are its hyper-parameters and its whole configuration.

    A rule never exponentiates a log-ratio, never sees padding, and drops every token that is not `batch.valid` or
    whose log-ratio is not finite.
    """

    name: ClassVar[str]
    scope: ClassVar[Scope]
    needs: ClassVar[frozenset[Column]]
    reference: ClassVar[str]
    inequality: ClassVar[str]

    def keep(self, batch: TokenBatch, reduce: Reduce = local) -> Tensor:
        """Return `[..., N]` bool, True where the token is trusted.

        Args:
            batch: one whole batch; a rule of batch scope needs all tokens of the update (see `keep_micro_batches`).
            reduce: sums statistics over processes; only rules of batch scope call it.

        Raises:
            ConfigError: the batch lacks a column that the rule needs.
        """
        if missing := batch.missing(self.needs):
            raise ConfigError(f"rule {self.name!r} needs {', '.join(missing)}, which this batch lacks; record it.")
        batch = batch.detach()
        whole = self.scope is not Scope.TOKEN or batch.logp_pi.numel() <= _BLOCK
        if whole or batch.logp_pi.device.type != "cpu":
            return self._keep(batch, reduce)
        # A token rule is a chain of cheap passes: in blocks that stay in cache it costs about two passes over memory.
        length = max(1, _BLOCK * batch.n_tokens // batch.logp_pi.numel())
        mask = torch.empty(batch.logp_pi.shape, dtype=torch.bool)
        for piece, block in zip(torch.split(mask, length, dim=-1), batch.blocks(length), strict=True):
            piece.copy_(self._keep(block, reduce))
        return mask

    def _keep(self, batch: TokenBatch, reduce: Reduce) -> Tensor:
        log_ratio = batch.log_ratio
        # x + 0·y is x, but NaN where y is infinite or NaN: one pass in place of a slower test and a conjunction.
        for name in sorted({Column.ENTROPY_MU, *(self.needs & _RECORDED)}):
            log_ratio.add_(getattr(batch, name), alpha=0.0)
        return self._inside(batch, log_ratio, reduce)

    @abstractmethod
    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        """Return `[..., N]` bool: the rule's own inequality.

        Args:
            batch: the tokens, detached.
            log_ratio: `[..., N]` δ, a copy; NaN where the record is not usable, infinite where π_θ(y) = 0. Both must
                come out False, as they do in |δ| ≤ bound; where the inequality is another, use `finite`.
            reduce: as in `keep`.
        """

    def scaled(self, factor: float) -> Self:
        """Return the rule with its threshold scaled by `factor` > 0; a larger factor never keeps fewer tokens.

        This is the dial that calibration to a masked fraction turns; a factor of 1 is the rule itself.

        Raises:
            RangeError: the factor is not positive and finite, or takes a hyper-parameter out of its bound.
        """
        check_range("factor", factor, low=0.0, low_open=True, high=inf, high_open=True)
        return self._scaled(factor)

    @abstractmethod
    def _scaled(self, factor: float) -> Self:
        """Return the rule with its threshold scaled by a factor that is positive and finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedRule(KeepRule):
    """A rule that keeps δ inside an interval which the token's own position sets.

    Args:
        side: drop everything beyond the interval, or only outward tokens.
    """

    side: Side = Side.SYMMETRIC

    def __post_init__(self) -> None:
        object.__setattr__(self, "side", check_member("side", self.side, Side))

    @abstractmethod
    def bounds(self, batch: TokenBatch) -> tuple[Tensor | float, Tensor | float]:
        """Return (low, high), numbers or `[..., N]`, low ≤ 0 ≤ high: the interval of δ that is kept, ends included."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        # In eager torch a comparison costs as much as three arithmetic passes, so there is only one. NaN fails it, and
        # so does ∞: against an infinite bound through the largest number here, through ∞ − ∞ or 0·∞ below.
        low, high = self.bounds(batch)
        if self.side is Side.SYMMETRIC:
            largest = torch.finfo(log_ratio.dtype).max
            if not isinstance(low, Tensor) and not isinstance(high, Tensor):
                return log_ratio.clamp(max(low, -largest), min(high, largest)) == log_ratio
            low = low if isinstance(low, Tensor) else log_ratio.new_tensor(max(low, -largest))
            high = high if isinstance(high, Tensor) else log_ratio.new_tensor(min(high, largest))
            return torch.clamp(log_ratio, low, high) == log_ratio
        direction = batch.advantage.sign()
        above = (log_ratio - high).relu_().mul_(direction.relu())
        below = (low - log_ratio).relu_().mul_(direction.neg().relu_())
        return above.add_(below) == 0.0
