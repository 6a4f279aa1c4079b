"""ENTR with the sharp variance envelope v(H) in place of the entropy.

Under drift of logit range R, Var_μ(δ) ≤ R²·v(H) with v(H) = q(1 − q), h_b(q) = H, q ≤ ½ for H ≤ ln 2 and v = ¼ above
(theory statement B3, sharp for every H ≤ ln 2). v is convex on [0, ln 2], so its chord bounds it, and the factor 4 ln 2
turns the chord into the entropy: 4 ln 2·v(H) ≤ H, with equality at H = 0 and H = ln 2; the scale saturates at ln 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import ClassVar, Final, Self, final

import torch
from torch import Tensor

from entr_lab.rules.base import BoundedRule, Scope
from entr_lab.rules.entr import boundary, check_tau_eps
from entr_lab.tokens import Column, TokenBatch, promote

__all__ = ["EntrEnvelope", "variance_envelope"]

_STEPS: Final = 3
"""Newton steps: the largest relative error of v over H from 1e-24 to ln 2 is 1e-5, 2e-11, 1e-14 after 2, 3, 4."""

_SMALLEST: Final = 1e-30
"""Below it the envelope is 0 beside any ε that float32 holds."""


def variance_envelope(entropy: Tensor) -> Tensor:
    """Return v(H) = q(1 − q), `[..., N]`, where h_b(q) = H and q ≤ ½; ¼ for H ≥ ln 2.

    With q = 1/(1 + e^z), h_b = log(1 + e^−z) + z·q and dh_b/d(z²) = −v/2, which vanishes nowhere: Newton's method on
    log h_b as a function of z², from z = L + log(1 + L) with L = −log H, which is exact to first order as H → 0.
    """
    target = promote(entropy).double().clamp(_SMALLEST, log(2.0))
    log_target = target.log()
    square = (torch.log1p(-log_target) - log_target).square_()
    for _ in range(_STEPS):
        z = square.sqrt()
        odds = z.neg().exp_()
        q = odds / (1.0 + odds)
        value = odds.log1p() + z * q
        square = (square + 2.0 * value / (q * (1.0 - q)) * (value.log() - log_target)).clamp_(min=0.0)
    q = torch.sigmoid(-square.sqrt())
    wide = promote(entropy)
    envelope = torch.where(wide >= log(2.0), 0.25, q * (1.0 - q)).to(wide.dtype)
    return torch.where(wide <= 0.0, 0.0, envelope)


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
        check_tau_eps(self.tau, self.eps)

    def bounds(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return ∓√(τ(4 ln 2·v(H) + ε))."""
        scale = variance_envelope(batch.entropy_mu).mul_(4.0 * log(2.0))
        high = boundary(scale, tau=self.tau, eps=self.eps)
        return -high, high

    def _scaled(self, factor: float) -> Self:
        """Scale the boundary: τ by the square of the factor."""
        return replace(self, tau=self.tau * factor * factor)
