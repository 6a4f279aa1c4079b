"""A constant threshold on |δ|: the ablation baseline of the paper's Table 2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

from entr_lab.errors import check_range
from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.tokens import Column, TokenBatch

__all__ = ["Fixed"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(BoundedRule):
    """Keep a token iff |δ| ≤ threshold.

    Args:
        threshold: largest kept |δ|, nats. Equals ENTR's boundary at H = threshold²/τ − ε. The paper prints no value;
            1.2 is ours, from sweeps at staleness 30.
    """

    threshold: float = 1.2

    name: ClassVar[str] = "fixed"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "arXiv 2607.22186, section 5.4 (Table 2); verl's token_k2 at threshold²/2"
    inequality: ClassVar[str] = "|δ| ≤ c"

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_range("threshold", self.threshold, low=0.0, low_open=True)

    def bounds(self, batch: TokenBatch) -> tuple[float, float]:
        """Return (−c, c)."""
        return -self.threshold, self.threshold

    def _scaled(self, factor: float) -> Self:
        """Scale the threshold."""
        return replace(self, threshold=self.threshold * factor)
