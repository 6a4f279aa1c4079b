"""The policy loss: keep mask × detached weight × surrogate, summed and divided by a named, global denominator.

    loss = −Σ_t coefficient_t · keep_t · f_t · surrogate(x_t, A_t)

A dropped token's log-ratio is replaced by zero *before* any exponential, so that δ = ±∞ or NaN among the dropped
leaves the loss and every gradient finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entr_lab.objective.methods import Method
from entr_lab.objective.ratios import log_ratios
from entr_lab.objective.reductions import coefficients
from entr_lab.objective.weights import log_factor
from entr_lab.rules import Reduce, keep_micro_batches, local
from entr_lab.tokens import TokenBatch, concatenate

__all__ = ["Decision", "PolicyLoss", "decide", "decide_micro_batches", "policy_loss"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What an update decides before any gradient.

    Args:
        keep: `[..., N]` bool.
        coefficient: broadcastable to `[..., N]`; what each token's contribution is multiplied by.
    """

    keep: Tensor
    coefficient: Tensor


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """Loss of a batch.

    Args:
        loss: `[...]` to minimise, one number per run; micro-batches and processes add up.
        keep: `[..., N]` bool.
        weight: `[..., N]` detached f·r, what multiplies A·∇log π where no clip acts; 0 on dropped tokens.
    """

    loss: Tensor
    keep: Tensor
    weight: Tensor


def decide(method: Method, batch: TokenBatch, reduce: Reduce = local) -> Decision:
    """Return the decision on one undivided batch."""
    keep = method.rule.keep(batch, reduce)
    return Decision(keep, coefficients(method.reduction, batch, keep, reduce))


def decide_micro_batches(method: Method, batches: Sequence[TokenBatch], reduce: Reduce = local) -> list[Decision]:
    """Return one decision per micro-batch: masks and denominators of the undivided batch, cut the same way."""
    keeps = keep_micro_batches(method.rule, batches, reduce)
    whole = concatenate([batch.detach() for batch in batches])
    coefficient = coefficients(method.reduction, whole, torch.cat(keeps, dim=-1), reduce)
    pieces = torch.split(coefficient.expand(whole.logp_pi.shape), [batch.n_tokens for batch in batches], dim=-1)
    return [Decision(keep, piece) for keep, piece in zip(keeps, pieces, strict=True)]


def policy_loss(
    method: Method, batch: TokenBatch, decision: Decision | None = None, reduce: Reduce = local
) -> PolicyLoss:
    """Return the loss of `method` on `batch`, differentiable in `batch.logp_pi`.

    Args:
        method: rule, anchor, weight, surrogate and reduction.
        batch: tokens of the update, or of one micro-batch together with its `decision`.
        decision: from `decide` or `decide_micro_batches`; taken on this batch if left out.
        reduce: sums counts over processes; used only if the decision is taken here.

    Raises:
        ConfigError: the batch lacks a column that the rule or the anchor needs.
    """
    decision = decision or decide(method, batch, reduce)
    keep = decision.keep
    ratios = log_ratios(batch, method.anchor)
    factor = log_factor(method.weight, ratios, method.rule, batch).expand(keep.shape)
    zero = torch.zeros((), dtype=ratios.surrogate.dtype, device=keep.device)
    advantage = batch.advantage.to(zero.dtype)
    active = keep & (advantage != 0)  # where A = 0 even an infinite ratio contributes nothing
    contribution = method.surrogate.value(
        torch.where(active, ratios.surrogate, zero),
        torch.where(active, advantage, zero),
        torch.where(active, factor, zero),
    )
    weight = torch.where(keep, (factor + ratios.surrogate.detach()).exp(), zero)
    return PolicyLoss(-(contribution * decision.coefficient).sum(-1), keep, weight)
