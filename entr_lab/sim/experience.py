"""Experience: finished rollouts of several runs as the packed columns that an update reads."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.objective import Advantage, group_advantage
from entr_lab.sim.recording import recorded_logp
from entr_lab.sim.rollouts import Rollouts
from entr_lab.tokens import TokenBatch

__all__ = ["Experience"]


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """Columns of S runs: R rollouts, N = R·T tokens, rollout after rollout.

    Groups whose rewards are all equal have no advantage, hence no gradient. They come last, so that the backward
    pass can stop before them; rules and metrics see every token.
    """

    tokens: Tensor
    """`[S, N]` int64."""
    rows: Tensor
    """`[S, N, features]` int64 rows of the policy's table."""
    logp_mu: Tensor
    """`[S, N]` log μ(y) as recorded, nats."""
    entropy_mu: Tensor
    """`[S, N]` nats."""
    weight_version: Tensor
    """`[S, N]` int64."""
    reward: Tensor
    """`[S, R]`."""
    group: Tensor
    """`[S, R]` int64, prompt of each rollout."""
    sequence: Tensor
    """`[S, R]` int64, number of each rollout."""

    @classmethod
    def of(
        cls,
        rollouts: Rollouts,
        reward: NDArray[np.float32],
        error: NDArray[np.float32],
        versions: NDArray[np.int64],
        group_size: int,
    ) -> Experience:
        """Pack finished rollouts.

        Args:
            rollouts: of S runs, method by method, and within a method by seed.
            reward: `[S, R]`.
            error: `[seeds, R, T]` error of the recorded probability.
            versions: `[1, T]` or `[R, T]` version that sampled each token.
            group_size: neighbouring rollouts that share a prompt.
        """
        runs, count, horizon = rollouts.tokens.shape
        grouped = reward.reshape(runs, -1, group_size)
        equal = (grouped == grouped[..., :1]).all(-1).repeat(group_size, axis=-1)
        order = torch.from_numpy(equal.argsort(-1, kind="stable"))
        place = (order + torch.arange(0, runs * count, count)[:, None]).flatten()

        def pick(column: Tensor) -> Tensor:
            return column.reshape(runs * count, -1).index_select(0, place).view(runs, -1)

        errors = torch.from_numpy(error).repeat(runs // len(error), 1, 1)
        logp_mu = recorded_logp(rollouts.logp, errors)
        version = torch.from_numpy(versions).expand(runs, count, horizon)
        return cls(
            tokens=pick(rollouts.tokens),
            rows=pick(rollouts.rows).view(runs, count * horizon, -1),
            logp_mu=pick(logp_mu),
            entropy_mu=pick(rollouts.entropy),
            weight_version=pick(version),
            reward=pick(torch.from_numpy(reward)),
            group=order // group_size,
            sequence=order,
        )

    def runs(self, chosen: slice) -> Experience:
        """Select runs, as views."""
        return Experience(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def batch(self, logp_pi: Tensor, target_version: int, advantage: Advantage) -> TokenBatch:
        """Return the record that rules and objective read, with `logp_pi` `[S, N]` of the trainer."""
        horizon = self.tokens.shape[1] // self.reward.shape[1]
        value = group_advantage(advantage, self.reward, self.group)
        return TokenBatch(
            logp_pi=logp_pi,
            logp_mu=self.logp_mu,
            entropy_mu=self.entropy_mu,
            advantage=_repeat(value, horizon),
            sequence=_repeat(self.sequence, horizon),
            group=_repeat(self.group, horizon),
            weight_version=self.weight_version,
            target_version=target_version,
        )


def _repeat(values: Tensor, times: int) -> Tensor:
    return values[..., None].expand(*values.shape, times).flatten(-2)
