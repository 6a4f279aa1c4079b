"""From groups of rollouts to the columns of an update: advantages, ids, and token batches cut from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.objective import Advantage, group_advantage
from entr_lab.real.records import Rollout
from entr_lab.tokens import TokenBatch

__all__ = ["UpdateColumns"]


@dataclass(frozen=True, slots=True)
class UpdateColumns:
    """All sequences of one batch, in order, with what an update needs of them.

    Args:
        rollouts: `B` sequences.
        group: `[B]` int64 number of each sequence's group.
        advantage: `[B]` float32.
    """

    rollouts: tuple[Rollout, ...]
    group: Tensor
    advantage: Tensor

    @classmethod
    def of(cls, groups: Sequence[Sequence[Rollout]], kind: Advantage) -> UpdateColumns:
        """Compute the advantages of whole groups.

        Raises:
            DataError: there is no rollout, or a reward is not a number.
        """
        rollouts = tuple(rollout for group in groups for rollout in group)
        if not rollouts:
            raise DataError("an update needs at least one rollout, got none.")
        reward = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
        if not bool(reward.isfinite().all()):
            broken = rollouts[int((~reward.isfinite()).int().argmax())]
            raise DataError(f"sample {broken.sample.get('id')!r} has reward {broken.reward!r}; report it as failed.")
        group = torch.tensor([index for index, members in enumerate(groups) for _ in members])
        return cls(rollouts, group, group_advantage(kind, reward, group).float())

    @property
    def zero_variance_frac(self) -> float:
        """Share of groups whose advantages are all exactly zero: they teach nothing, and count in denominators."""
        n_groups = int(self.group.max()) + 1
        informative = torch.unique(self.group[self.advantage != 0])
        return 1.0 - len(informative) / n_groups

    def batch(
        self,
        sequences: Sequence[int],
        logp_pi: Tensor,
        target_version: int,
        logp_prox: Tensor | None = None,
    ) -> TokenBatch:
        """Return the trainable tokens of some sequences, in order, on the device of `logp_pi`."""
        chosen = [self.rollouts[index] for index in sequences]
        trainable = [rollout.trainable for rollout in chosen]
        lengths = torch.tensor([int(mask.sum()) for mask in trainable])
        index = torch.tensor(list(sequences))

        def column(name: str, dtype: type) -> Tensor:
            parts = [getattr(r, name)[mask] for r, mask in zip(chosen, trainable, strict=True)]
            return torch.from_numpy(np.concatenate(parts).astype(dtype)).to(logp_pi.device)

        def spread(values: Tensor) -> Tensor:
            return values[index].repeat_interleave(lengths).to(logp_pi.device)

        return TokenBatch(
            logp_pi=logp_pi,
            logp_mu=column("logp_mu", np.float32),
            entropy_mu=column("entropy_mu", np.float32),
            collision_mu=column("collision_mu", np.float32),
            advantage=spread(self.advantage),
            sequence=spread(torch.arange(len(self.rollouts))),
            group=spread(self.group),
            weight_version=column("weight_version", np.int64),
            target_version=target_version,
            turn=column("turn", np.int64),
            logp_prox=logp_prox,
        )

    def split(self, sequences: Sequence[int], values: Tensor) -> list[Tensor]:
        """Cut a packed column of `batch(sequences, …)` into one piece per sequence."""
        return list(torch.split(values, [int(self.rollouts[index].trainable.sum()) for index in sequences]))
