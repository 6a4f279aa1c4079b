"""KPop: keep a token while the two-way binary KL between its probabilities stays below a constant.

The vocabulary is read as {sampled token, rest}. As a rule in probability space it hardly ever rejects a rare token:
at μ = 1e-4 and φ = 0.1 every ratio up to 225 is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log, log1p
from typing import ClassVar, Self, final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.rules.base import MAX_PARAMETER, KeepRule, Reduce, Scope, finite
from entr_lab.tokens import Column, TokenBatch, promote

__all__ = ["Kpop", "binary_kl", "log1mexp"]


def log1mexp(logp: Tensor) -> Tensor:
    """Return log(1 − exp(logp)) for logp < 0, accurate at both ends.

    Near 0 the probability is close to 1 and −expm1 carries all digits; far below 0, log1p does.
    """
    near = logp > -log(2.0)
    # `where` on the argument first: the branch not taken must not overflow or produce NaN.
    small = torch.where(near, logp, torch.full_like(logp, -1.0))
    large = torch.where(near, torch.full_like(logp, -1.0), logp)
    return torch.where(near, (-small.expm1()).log(), (-large.exp()).log1p())


def binary_kl(logp: Tensor, logq: Tensor) -> tuple[Tensor, Tensor]:
    """Return D_B(p‖q) and D_B(q‖p), nats, for log-probabilities strictly below 0.

    D_B(p‖q) = p·log(p/q) + (1−p)·log((1−p)/(1−q)); both directions share their logarithms.
    """
    log_ratio = logp - logq
    log_rest_ratio = log1mexp(logp) - log1mexp(logq)
    forward = logp.exp() * log_ratio - logp.expm1() * log_rest_ratio
    backward = logq.expm1() * log_rest_ratio - logq.exp() * log_ratio
    return forward, backward


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Kpop(KeepRule):
    """Keep a token iff D_B(p‖q) ≤ φ and D_B(q‖p) ≤ φ, with p = π_θ(y), q = μ(y), ends included.

    Args:
        phi: largest kept binary KL, nats. 0.1 is the default that prime-rl's change 3283 attributes to the paper;
            AReaL ships 2.0, the authors' blog tries 0.1 to 2.0.
        floor: probabilities are clamped to [floor, 1 − floor], in log space; without it a log-probability that
            rounded to 0 would make the divergence infinite. 1e-6 as in prime-rl.
    """

    phi: float = 0.1
    floor: float = 1e-6

    name: ClassVar[str] = "kpop"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "KPop, Ring-2.6 report arXiv 2606.15079; prime-rl change 3283"
    inequality: ClassVar[str] = "max(D_B(p‖q), D_B(q‖p)) ≤ φ"

    def __post_init__(self) -> None:
        check_range("phi", self.phi, low=0.0, low_open=True, high=MAX_PARAMETER)
        check_range("floor", self.floor, low=2.0**-24, high=0.5, high_open=True)

    def divergence(self, batch: TokenBatch) -> Tensor:
        """Return `[..., N]` max(D_B(p‖q), D_B(q‖p)), nats."""
        low, high = log(self.floor), log1p(-self.floor)
        logp = promote(batch.logp_pi).clamp(low, high)
        logq = promote(batch.logp_mu).clamp(low, high)
        return torch.maximum(*binary_kl(logp, logq))

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return (self.divergence(batch) <= self.phi).logical_and_(finite(log_ratio))

    def _scaled(self, factor: float) -> Self:
        """Scale φ."""
        return replace(self, phi=self.phi * factor)
