"""M2PO: drop the largest squared log-ratios of the batch until their mean is within a budget (Algorithm 1).

Eligible are tokens that already moved the way their advantage pushes them: A > 0 and δ > 0, or A < 0 and δ < 0.
Sorted ascending, the longest prefix of eligible δ² whose running mean is at most the budget is kept; all other
eligible tokens are dropped; tokens that are not eligible are always kept.

The decision needs the whole batch. It is computed by radix selection, from counts and sums per bucket, without a
sort. Counts and sums are integers held exactly in float64 and are summed over processes, so the mask is the same for
any split of the batch into micro-batches or processes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self, final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.rules.base import MAX_PARAMETER, KeepRule, Reduce, Scope, finite
from entr_lab.tokens import Column, TokenBatch

__all__ = ["M2po", "prefix_mean_cutoff"]

_DIGITS: Final = ((20, 11), (9, 11), (0, 9))
"""(shift, width) of the digits of a non-negative float32's 31 bits, most significant first."""

_UNIT: Final = 2.0**20
"""δ² is counted in budget/2²⁰: sums of n tokens stay exact integers in float64 up to n = 2³³ where they matter."""


def prefix_mean_cutoff(squares: Tensor, eligible: Tensor, budget: float, reduce: Reduce) -> Tensor:
    """Return the smallest value whose class would push the running mean above the budget; +inf if none does.

    Keeping every eligible token *below* the cutoff keeps the longest prefix, in ascending order, with mean ≤ budget.
    Equal values are kept or dropped together: no order among them could be the same for every split.

    Args:
        squares: `[..., N]` float32, non-negative.
        eligible: `[..., N]` bool; the rest is ignored.
        budget: largest mean of the kept eligible squares.
        reduce: sums counts over processes.

    Returns:
        `[...]` float32.
    """
    runs = squares.shape[:-1]
    n_runs = max(1, runs.numel())
    # One search for the candidates and gathers by position: a boolean index would search again for every column.
    position = eligible.reshape(-1).nonzero().squeeze(-1)
    candidates = squares.reshape(-1).index_select(0, position)
    row = position.div(squares.shape[-1], rounding_mode="floor") if n_runs > 1 else torch.zeros_like(position)
    bits = candidates.view(torch.int32)
    units = (candidates.double() * (_UNIT / budget)).round_()
    kept_count = torch.zeros(n_runs, dtype=torch.float64, device=squares.device)
    kept_units = torch.zeros_like(kept_count)
    prefix = torch.zeros(n_runs, dtype=torch.int32, device=squares.device)
    unbounded = torch.zeros(n_runs, dtype=torch.bool, device=squares.device)
    for level, (shift, width) in enumerate(_DIGITS):
        size = 1 << width
        digit = (bits >> shift) & (size - 1)
        slot = row * size + digit
        count = torch.bincount(slot, minlength=n_runs * size).double().view(n_runs, size)
        total = torch.bincount(slot, weights=units, minlength=n_runs * size).double().view(n_runs, size)
        count, total = reduce(torch.stack((count, total)))
        count_to = kept_count.unsqueeze(-1) + count.cumsum(-1)
        units_to = kept_units.unsqueeze(-1) + total.cumsum(-1)
        over = units_to > count_to * _UNIT
        # Running means of an ascending list never fall, so the first bucket over the budget holds the cutoff.
        first = over.int().argmax(-1)
        if level == 0:
            unbounded = ~over.any(-1)
        before = (first - 1).clamp(min=0).unsqueeze(-1)
        has_before = first > 0
        kept_count = torch.where(has_before, count_to.gather(-1, before).squeeze(-1), kept_count)
        kept_units = torch.where(has_before, units_to.gather(-1, before).squeeze(-1), kept_units)
        prefix |= first.int() << shift
        inside = (digit == first[row]).nonzero().squeeze(-1)
        row, bits, units = (column.index_select(0, inside) for column in (row, bits, units))
    cutoff = prefix.view(torch.float32).masked_fill(unbounded, float("inf"))
    return cutoff.view(runs)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class M2po(KeepRule):
    """Keep all but the largest eligible δ², so that the mean of the kept eligible δ² is at most the budget.

    Args:
        budget: second-moment budget, nats²; 0.04 throughout the paper.
    """

    budget: float = 0.04

    name: ClassVar[str] = "m2po"
    scope: ClassVar[Scope] = Scope.BATCH
    needs: ClassVar[frozenset[Column]] = frozenset({Column.ADVANTAGE})
    reference: ClassVar[str] = "M2PO, arXiv 2510.01161v2, Algorithm 1"
    inequality: ClassVar[str] = "mean of kept δ² ≤ τ over tokens with A·δ > 0"

    def __post_init__(self) -> None:
        check_range("budget", self.budget, low=0.0, low_open=True, high=MAX_PARAMETER)

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        trusted = finite(log_ratio)
        eligible = trusted & (log_ratio.sign() * batch.advantage.sign() > 0)
        squares = log_ratio.square().float()
        cutoff = prefix_mean_cutoff(squares, eligible, self.budget, reduce)
        return trusted & ~(eligible & (squares >= cutoff.unsqueeze(-1)))

    def _scaled(self, factor: float) -> Self:
        """Scale the budget."""
        return replace(self, budget=self.budget * factor)
