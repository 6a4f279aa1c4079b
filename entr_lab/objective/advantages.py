"""Group advantages: a trajectory's reward against the other trajectories of its prompt.

Advantages are computed before any keep rule and never changed by it: a dropped token leaves the loss, not the
baseline of its group.
"""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor

from entr_lab.errors import ShapeError

__all__ = ["Advantage", "dr_grpo_advantage", "group_advantage", "grpo_advantage"]


class Advantage(StrEnum):
    """`grpo`: centred and divided by the group's standard deviation. `dr-grpo`: centred only."""

    GRPO = "grpo"
    DR_GRPO = "dr-grpo"


def grpo_advantage(reward: Tensor, group: Tensor, eps: float = 1e-4) -> Tensor:
    """Return (R − mean)/(std + ε) within each group, `[..., B]`.

    Args:
        reward: `[..., B]` one reward per trajectory.
        group: `[..., B]` int64 ids, local to a run.
        eps: keeps groups of equal rewards at exactly zero.

    The deviation is the sample's (n − 1), as in verl and TRL; a group of one has advantage 0.
    Source: GRPO, arXiv 2402.03300.
    """
    centred, one_hot, size = _centre(reward, group)
    variance = _per_group(centred.square(), one_hot) / (size - 1.0).clamp(min=1.0)
    return centred / (_spread(variance, one_hot).sqrt() + eps)


def dr_grpo_advantage(reward: Tensor, group: Tensor) -> Tensor:
    """Return R − mean within each group, `[..., B]`. Source: Dr. GRPO, arXiv 2503.20783."""
    return _centre(reward, group)[0]


def group_advantage(kind: Advantage, reward: Tensor, group: Tensor) -> Tensor:
    """Return the named advantage, `[..., B]`."""
    return grpo_advantage(reward, group) if kind is Advantage.GRPO else dr_grpo_advantage(reward, group)


def _centre(reward: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if reward.shape != group.shape or reward.ndim == 0:
        raise ShapeError(f"reward and group must share [..., B], got {list(reward.shape)} and {list(group.shape)}.")
    ids: Tensor = torch.unique(group)
    one_hot = (group.unsqueeze(-1) == ids).to(reward.dtype)
    size = one_hot.sum(-2)
    # Means of differences to one member: equal rewards give exactly 0, which a mean of the rewards rounds away.
    member = one_hot.argmax(-2, keepdim=False)
    offset = reward - _spread(reward.gather(-1, member), one_hot)
    mean = _per_group(offset, one_hot) / size.clamp(min=1.0)
    return offset - _spread(mean, one_hot), one_hot, size


def _per_group(values: Tensor, one_hot: Tensor) -> Tensor:
    return torch.einsum("...b,...bg->...g", values, one_hot)


def _spread(values: Tensor, one_hot: Tensor) -> Tensor:
    return torch.einsum("...g,...bg->...b", values, one_hot)
