"""ENTR: a token's behaviour entropy sets the natural scale of its log-ratio (arXiv 2607.22186, section 4.2).

The entropy is the engine's, of the distribution that was sampled from, over the full vocabulary; the trainer's own
entropy is a different quantity. The rule decides which tokens to trust and nothing else: ratio, clip, weight and
denominator belong to `entr_lab.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.rules.base import MAX_PARAMETER, BoundedRule, Scope
from entr_lab.tokens import Column, TokenBatch, promote

__all__ = ["Entr", "boundary", "check_tau_eps", "standardised_deviation"]


def boundary(entropy: Tensor, *, tau: float, eps: float) -> Tensor:
    """Return b(H) = √(τ·(H + ε)), the largest kept |δ| at entropy H.

    Args:
        entropy: `[..., N]` nats; values below 0 by rounding count as 0.
        tau: keep threshold τ.
        eps: entropy floor ε, nats.

    Source: arXiv 2607.22186, section 4.2; b → √(τε) as H → 0 and b ~ √(τH) for H ≫ ε.
    """
    scale = promote(entropy).clamp(min=0.0)
    return torch.add(tau * eps, scale, alpha=tau, out=scale).sqrt_()


def standardised_deviation(log_ratio: Tensor, entropy: Tensor, *, eps: float) -> Tensor:
    """Return z = δ/√(H + ε), `[..., N]`; ENTR keeps z² ≤ τ. Source: arXiv 2607.22186, equation (3)."""
    return promote(log_ratio) / boundary(entropy, tau=1.0, eps=eps)


def check_tau_eps(tau: float, eps: float) -> None:
    """Check the two hyper-parameters of every boundary √(τ(scale + ε)).

    Raises:
        RangeError: τ is not positive, ε is negative, or one is too large for float32.
    """
    check_range("tau", tau, low=0.0, low_open=True, high=MAX_PARAMETER)
    check_range("eps", eps, low=0.0, high=MAX_PARAMETER)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Entr(BoundedRule):
    """Keep a token iff δ²/(H + ε) ≤ τ, the boundary included.

    Args:
        tau: keep threshold τ. The paper uses 1.0 (BrowseComp-Plus) and 1.6 (DAPO-Math), swept 0.7 to 1.6.
        eps: entropy floor ε, nats; 0.01 by public notes on the paper. The boundary at H → 0 is √(τε).
    """

    tau: float = 1.0
    eps: float = 0.01

    name: ClassVar[str] = "entr"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset({Column.ENTROPY_MU})
    reference: ClassVar[str] = "arXiv 2607.22186, section 4.2"
    inequality: ClassVar[str] = "δ²/(H + ε) ≤ τ"

    def __post_init__(self) -> None:
        BoundedRule.__post_init__(self)
        check_tau_eps(self.tau, self.eps)

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return (−b(H), b(H))."""
        high = boundary(batch.entropy_mu, tau=self.tau, eps=self.eps)
        return -high, high

    def _scaled(self, factor: float) -> Self:
        """Scale the boundary: τ by the square of the factor."""
        return replace(self, tau=self.tau * factor * factor)
