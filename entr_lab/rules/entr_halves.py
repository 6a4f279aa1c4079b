"""The two halves of ENTR, each on its own against a constant threshold: the ablation of the paper's Table 2.

With c the constant threshold and b(H) ENTR's boundary, *exploration preservation* keeps what either accepts and
*outlier suppression* keeps what both accept. Each is one-sided in entropy, not in the sign of δ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.rules.base import MAX_PARAMETER, BoundedRule, Scope
from entr_lab.rules.entr import boundary, check_tau_eps
from entr_lab.tokens import Column, TokenBatch

__all__ = ["EntrExplore", "EntrOutlier"]

_REFERENCE = "arXiv 2607.22186, section 5.4 (Table 2)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half(BoundedRule):
    """What the halves share: a constant threshold beside ENTR's boundary.

    Args:
        threshold: constant threshold c on |δ|, nats, as in `Fixed`.
        tau: keep threshold τ of ENTR's boundary b(H) = √(τ(H + ε)).
        eps: entropy floor ε, nats.
    """

    threshold: float = 1.2
    tau: float = 1.0
    eps: float = 0.01

    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset({Column.ENTROPY_MU})
    reference: ClassVar[str] = _REFERENCE

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_range("threshold", self.threshold, low=0.0, low_open=True, high=MAX_PARAMETER)
        check_tau_eps(self.tau, self.eps)

    def entr_boundary(self, batch: TokenBatch) -> Tensor:
        """Return ENTR's own boundary, `[..., N]`."""
        return boundary(batch.entropy_mu, tau=self.tau, eps=self.eps)

    def _scaled(self, factor: float) -> Self:
        """Scale both boundaries."""
        return replace(self, threshold=self.threshold * factor, tau=self.tau * factor * factor)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EntrExplore(_Half):
    """Keep a token iff |δ| ≤ max(c, b(H)): high-entropy tokens that a constant threshold rejects are retained."""

    name: ClassVar[str] = "entr-explore"
    inequality: ClassVar[str] = "|δ| ≤ max(c, √(τ(H + ε)))"

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return ∓max(c, b)."""
        high = self.entr_boundary(batch).clamp_(min=self.threshold)
        return -high, high


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EntrOutlier(_Half):
    """Keep a token iff |δ| ≤ min(c, b(H)): low-entropy tokens that a constant threshold accepts are filtered."""

    name: ClassVar[str] = "entr-outlier"
    inequality: ClassVar[str] = "|δ| ≤ min(c, √(τ(H + ε)))"

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return ∓min(c, b)."""
        high = self.entr_boundary(batch).clamp_(max=self.threshold)
        return -high, high
