"""ENTR with the Gini–Simpson index in place of the entropy: the exact scale under i.i.d. logit noise.

E[Var_μ(η)] = σ²(1 − Σμ²) for i.i.d. noise η of variance σ² (theory statement B2), so G = 1 − Σμ² is the variance
profile that H only bounds from above: G ≤ H/(2 ln 2), with equality at a fair coin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

from torch import Tensor

from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.rules.entr import boundary, check_tau_eps
from entr_lab.tokens import Column, TokenBatch, promote

__all__ = ["EntrGini"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EntrGini(BoundedRule):
    """Keep a token iff δ²/(G + ε) ≤ τ with G = 1 − Σμ², the boundary included.

    Args:
        tau: keep threshold τ; at equal τ the rule is tighter than ENTR, since G < H at every position.
        eps: floor ε added to G.

    A token whose `collision_mu` is not finite is dropped, like any token without a usable behaviour record.
    """

    tau: float = 1.0
    eps: float = 0.01

    name: ClassVar[str] = "entr-gini"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset({Column.COLLISION_MU})
    reference: ClassVar[str] = "ours; docs/theory.md, statement B2"
    inequality: ClassVar[str] = "δ²/(1 − Σμ² + ε) ≤ τ"

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_tau_eps(self.tau, self.eps)

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return ∓√(τ(G + ε))."""
        assert batch.collision_mu is not None  # declared in `needs`
        high = boundary(1.0 - promote(batch.collision_mu), tau=self.tau, eps=self.eps)
        return -high, high

    def _scaled(self, factor: float) -> Self:
        """Scale the boundary: τ by the square of the factor."""
        return replace(self, tau=self.tau * factor * factor)
