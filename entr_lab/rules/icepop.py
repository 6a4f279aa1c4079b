"""IcePop: keep a token while its importance ratio stays inside a constant band."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log
from sys import float_info
from typing import ClassVar, Self, final

from entr_lab.errors import check_range
from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.tokens import Column, TokenBatch

__all__ = ["IcePop"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IcePop(BoundedRule):
    """Keep a token iff low ≤ r ≤ high, that is log low ≤ δ ≤ log high, ends included.

    Args:
        low: smallest kept ratio, in (0, 1].
        high: largest kept ratio, at least 1.

    The original applies the band to prox/μ and multiplies the kept ratio into the loss; here, as in the ENTR paper's
    comparison, the band is on the method's ratio and the weight belongs to the objective.
    """

    low: float = 0.5
    high: float = 5.0

    name: ClassVar[str] = "icepop"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "Ring-1T, arXiv 2510.18855 (bounds 0.5 and 5)"
    inequality: ClassVar[str] = "log α ≤ δ ≤ log β"

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_range("low", self.low, low=0.0, low_open=True, high=1.0)
        check_range("high", self.high, low=1.0)

    def bounds(self, batch: TokenBatch) -> tuple[float, float]:
        """Return (log low, log high)."""
        return log(self.low), log(self.high)

    def _scaled(self, factor: float) -> Self:
        """Scale both ends of the band in log space; an end that leaves float64 stays at its last number or at ∞."""
        high = self.high**factor if log(self.high) * factor < log(float_info.max) else inf
        return replace(self, low=max(self.low**factor, float_info.min), high=high)
