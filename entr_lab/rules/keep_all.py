"""Plain asynchronous GRPO: trust every token whose behaviour record is usable."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Self, final

from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.tokens import Column, TokenBatch

__all__ = ["KeepAll"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAll(BoundedRule):
    """Keep every token: the interval is the whole line. The baseline that the paper calls Async."""

    name: ClassVar[str] = "keep-all"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "asynchronous GRPO without a mask; arXiv 2607.22186, section 5.1"
    inequality: ClassVar[str] = "true"

    def bounds(self, batch: TokenBatch) -> tuple[float, float]:
        """Return (−∞, ∞)."""
        return -inf, inf

    def _scaled(self, factor: float) -> Self:
        """Return the rule itself: it has no threshold."""
        return self
