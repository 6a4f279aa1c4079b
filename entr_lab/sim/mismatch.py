"""How the engine's distribution and record differ from the trainer's at equal weights.

Four causes, kept apart because they make different outliers. Noise on logits (bf16, routing flips) gives |δ| of
its own size at any probability, so that only z = δ/√(H + ε) blows up at low entropy; an error of the recorded
*probability* gives |δ| ≈ |e|/q, which has no bound as q → 0; truncation shifts every δ of a position by the same
amount. All functions take and give logits or log-probabilities `[..., V]`, float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.logits import normal_noise

__all__ = ["Mismatch", "bf16_logits", "record_error", "routing_flips", "top_p_log_probs", "top_p_mask"]

_SMALLEST_TAIL: float = 0.02
"""Floor of U in the heavy-tailed factor 1/√U, which so lies in [1, 7.1]."""


def bf16_logits(logits: Tensor) -> Tensor:
    """Return the logits after a cast to bfloat16 and back, as an engine does whose head runs in bfloat16.

    bfloat16 has 8 significant bits: a logit of 16 … 32 lies on a grid of 1/8, so its error is up to 1/16.
    """
    return logits.to(torch.bfloat16).to(logits.dtype)


def _heavy_tail(*shape: int, generator: torch.Generator) -> Tensor:
    """Return 1/√U, U uniform in [0.02, 1]."""
    uniform = torch.rand(*shape, generator=generator, dtype=torch.float64)
    return (_SMALLEST_TAIL + (1 - _SMALLEST_TAIL) * uniform).rsqrt()


def routing_flips(logits: Tensor, *, prob: float, scale: float, generator: torch.Generator) -> Tensor:
    """Return the logits of an engine whose mixture-of-experts router now and then picks another expert.

    With probability `prob` a position gets noise scale·(1/√U)·N(0, 1) on every logit, U ~ U(0.02, 1).

    Raises:
        RangeError: `prob` is outside [0, 1], or `scale` is negative.
    """
    check_range("prob", prob, low=0.0, high=1.0)
    check_range("scale", scale, low=0.0)
    flipped = (torch.rand(logits.shape[0], generator=generator, dtype=torch.float64) < prob).nonzero().squeeze(-1)
    size = scale * _heavy_tail(len(flipped), 1, generator=generator)
    noise = size * normal_noise(len(flipped), logits.shape[-1], generator=generator)
    return logits.index_add(0, flipped, noise)


def record_error(logp: Tensor, *, scale: float, generator: torch.Generator) -> Tensor:
    """Return the recorded log-probability log q_rec of sampled tokens: the paper's q = μ + e.

    q_rec = clip(q + scale·(1/√U)·N(0, 1)·(1 − q), 1e-6, 1), U ~ U(0.02, 1): an additive error in probability that
    vanishes with 1 − q, so that certain tokens are recorded exactly.

    Args:
        logp: `[N]` log q of the sampled tokens.
        scale: size of the error, a probability; 0 records exactly.
        generator: source of the error.

    Raises:
        RangeError: `scale` is negative.
    """
    check_range("scale", scale, low=0.0)
    error = normal_noise(*logp.shape, generator=generator) * _heavy_tail(*logp.shape, generator=generator)
    recorded = logp.exp() - torch.expm1(logp) * (scale * error)
    return recorded.clamp(1e-6, 1.0).log() if scale > 0 else logp


def top_p_mask(probs: Tensor, top_p: float) -> Tensor:
    """Return the nucleus, bool `[..., V]`: the fewest likeliest tokens whose mass reaches `top_p`; never empty.

    Raises:
        RangeError: `top_p` is outside (0, 1].
    """
    check_range("top_p", top_p, low=0.0, low_open=True, high=1.0)
    ordered, order = probs.sort(-1, descending=True)
    mass_before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probs, dtype=torch.bool).scatter(-1, order, mass_before < top_p)


def top_p_log_probs(log_probs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return what an engine records that samples from the nucleus, and the log of the nucleus's mass.

    The record is log p − log K inside and −inf outside. A trainer that does not truncate then sees δ = log K < 0 on
    every sampled token, whatever the token: the leak.

    Args:
        log_probs: `[..., V]` before truncation.
        top_p: nucleus mass.

    Returns:
        Truncated log-probabilities `[..., V]` and log K `[...]`.
    """
    nucleus = top_p_mask(log_probs.exp(), top_p)
    inside = torch.where(nucleus, log_probs, -torch.inf)
    log_mass = inside.logsumexp(-1)
    return inside - log_mass.unsqueeze(-1), log_mass


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """The mismatch of one engine; every part can be switched off by its own zero."""

    bf16: bool = True
    """The engine's head runs in bfloat16."""
    flip_prob: float = 0.0
    """Probability of a routing flip per position."""
    flip_scale: float = 1.0
    """Size of a routing flip, nats."""
    record: float = 0.0
    """Size of the error of the recorded probability."""

    def __post_init__(self) -> None:
        check_range("flip_prob", self.flip_prob, low=0.0, high=1.0)
        check_range("flip_scale", self.flip_scale, low=0.0)
        check_range("record", self.record, low=0.0)

    def engine_logits(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return the logits that the engine samples from, `[N, V]`; flips happen inside, the cast comes last."""
        if self.flip_prob > 0:
            logits = routing_flips(logits, prob=self.flip_prob, scale=self.flip_scale, generator=generator)
        return bf16_logits(logits) if self.bf16 else logits

    def recorded(self, logp: Tensor, generator: torch.Generator) -> Tensor:
        """Return the log-probabilities that the engine records for its sampled tokens, `[N]`."""
        return record_error(logp, scale=self.record, generator=generator)
