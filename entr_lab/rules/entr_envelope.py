"""ENTR with the sharp variance envelope v(H) in place of the entropy.

Under drift of logit range R, Var_μ(δ) ≤ R²·v(H) with v(H) = q(1 − q), h_b(q) = H, q ≤ ½ for H ≤ ln 2 and v = ¼ above
(theory statement B3, sharp for every H ≤ ln 2). v is convex on [0, ln 2], so its chord bounds it, and the factor 4 ln 2
turns the chord into the entropy: 4 ln 2·v(H) ≤ H, with equality at H = 0 and H = ln 2; the scale saturates at ln 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log
from typing import ClassVar, Final, Self, final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.rules.entr import boundary
from entr_lab.tokens import Column, TokenBatch, promote

__all__ = ["EntrEnvelope", "variance_envelope"]

_STEPS: Final = 40
"""Halvings of log q over 60 nats: an error of 1e-10 in log q, below float32 in v."""

_LOG_Q_MIN: Final = -60.0


def variance_envelope(entropy: Tensor) -> Tensor:
    """Return v(H) = q(1 − q), `[..., N]`, where h_b(q) = H and q ≤ ½; ¼ for H ≥ ln 2.

    Bisection on log q, in which h_b is increasing and well conditioned down to H = 1e-24.
    """
    target = promote(entropy).double().clamp(min=0.0)
    low = torch.full_like(target, _LOG_Q_MIN)
    high = torch.full_like(target, -log(2.0))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        q = middle.exp()
        below = -q * middle - (1.0 - q) * torch.log1p(-q) < target
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    q = high.exp()
    envelope = torch.where(target >= log(2.0), 0.25, q * (1.0 - q))
    return torch.where(target == 0.0, 0.0, envelope).to(promote(entropy).dtype)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EntrEnvelope(BoundedRule):
    """Keep a token iff δ²/(4 ln 2·v(H) + ε) ≤ τ, the boundary included.

    Args:
        tau: keep threshold τ; at equal τ the rule equals ENTR at H = 0 and H = ln 2 and is tighter elsewhere.
        eps: floor ε, nats.
    """

    tau: float = 1.0
    eps: float = 0.01

    name: ClassVar[str] = "entr-envelope"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset({Column.ENTROPY_MU})
    reference: ClassVar[str] = "ours; docs/theory.md, statement B3"
    inequality: ClassVar[str] = "δ²/(4 ln 2·v(H) + ε) ≤ τ"

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_range("tau", self.tau, low=0.0, low_open=True, high=inf, high_open=True)
        check_range("eps", self.eps, low=0.0, high=inf, high_open=True)

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return ∓√(τ(4 ln 2·v(H) + ε))."""
        scale = variance_envelope(batch.entropy_mu).mul_(4.0 * log(2.0))
        high = boundary(scale, tau=self.tau, eps=self.eps)
        return -high, high

    def _scaled(self, factor: float) -> Self:
        """Scale the boundary: τ by the square of the factor."""
        return replace(self, tau=self.tau * factor * factor)
