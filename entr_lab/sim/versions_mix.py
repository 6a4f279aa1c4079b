"""Several weight versions inside one trajectory: the switch jump, and what each token's δ is made of.

A trajectory that is generated while weights are swapped under it has tokens of versions v_first … v_last; the
update starts from v_target. With intra = v_last − v_first and inter = v_target − v_last (paper, staleness),

    δ  =  mismatch                     +  intra                            +  inter
          log p_{v_t}(y) − log μ(y)       log p_{v_last}(y) − log p_{v_t}(y)   log p_{v_target}(y) − log p_{v_last}(y)

where p_v is the trainer's distribution under version v and v_t the version that sampled the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.logits import log_ratio_of_shift

__all__ = ["Attribution", "VersionMix", "attribute", "switch_jump"]


@final
@dataclass(frozen=True, slots=True)
class VersionMix:
    """Versions of the tokens of a trajectory, which starts at version 0."""

    intra: int
    """v_last − v_first."""
    inter: int
    """v_target − v_last."""

    def __post_init__(self) -> None:
        check_range("intra", self.intra, low=0)
        check_range("inter", self.inter, low=0)

    @property
    def target(self) -> int:
        """v_target = intra + inter."""
        return self.intra + self.inter

    def token_versions(self, length: int) -> Tensor:
        """Return the version of each token, int64 `[length]`: ⌊(intra + 1) t / length⌋, swaps at equal distances.

        Raises:
            RangeError: the trajectory is too short to hold every version.
        """
        check_range("trajectory length", length, low=self.intra + 1)
        return (self.intra + 1) * torch.arange(length, dtype=torch.int64) // length


def switch_jump(probs: Tensor, step: Tensor) -> Tensor:
    """Return E[(log p_{v+1}(y) − log p_v(y))²] over y ~ p_v, exactly, `[N, V]` → `[N]`.

    Args:
        probs: p_v.
        step: change of the logits from one version to the next.
    """
    return (probs * log_ratio_of_shift(probs, step).square()).sum(-1)


@final
@dataclass(frozen=True, slots=True)
class Attribution:
    """The parts of δ of sampled tokens, `[N]` each, nats; they sum to δ."""

    mismatch: Tensor
    intra: Tensor
    inter: Tensor

    @property
    def total(self) -> Tensor:
        """mismatch + intra + inter."""
        return self.mismatch + self.intra + self.inter


def attribute(
    trainer_logits: Tensor, recorded: Tensor, tokens: Tensor, to_last: Tensor, to_target: Tensor
) -> Attribution:
    """Split δ of each sampled token into mismatch, intra and inter drift.

    The drifts are computed from the displacements, not as differences of log-probabilities, so that a part keeps its
    accuracy where it is small and the sum is a check rather than an identity.

    Args:
        trainer_logits: `[N, V]` the trainer's logits under each token's own version v_t.
        recorded: `[N]` log μ(y) as recorded.
        tokens: `[N]` int64 y.
        to_last: `[N, V]` displacement of the logits from v_t to v_last.
        to_target: `[N, V]` displacement from v_last to v_target.
    """
    index = tokens.unsqueeze(-1)
    probs = torch.softmax(trainer_logits, -1)
    log_prob = trainer_logits.gather(-1, index).squeeze(-1) - trainer_logits.logsumexp(-1)
    intra = log_ratio_of_shift(probs, to_last)
    inter = log_ratio_of_shift(torch.softmax(trainer_logits + to_last, -1), to_target)
    return Attribution(
        mismatch=log_prob - recorded,
        intra=intra.gather(-1, index).squeeze(-1),
        inter=inter.gather(-1, index).squeeze(-1),
    )
