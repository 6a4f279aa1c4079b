"""Finished rollouts by group and ticket, kept until their group is trained or dropped. Ours."""

from __future__ import annotations

from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.pipeline import Batch, DropReason, Group
from entr_lab.real.records import Rollout
from entr_lab.real.rollout_store import restore_rollouts, store_rollouts

__all__ = ["RolloutBuffer"]


class RolloutBuffer:
    """The tokens behind the tickets that a pipeline counts as finished; `closed` is the pipeline's callback."""

    def __init__(self) -> None:
        self._groups: dict[int, dict[int, Rollout]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    def put(self, group: int, ticket: int, rollout: Rollout) -> None:
        """Keep a finished rollout."""
        self._groups.setdefault(group, {})[ticket] = rollout

    def batch(self, batch: Batch) -> list[list[Rollout]]:
        """Return the rollouts of each group of a batch, in the order in which they finished."""
        return [[self._groups[group.id][trajectory.ticket] for trajectory in group.done] for group in batch.groups]

    def closed(self, group: Group, reason: DropReason | None) -> None:
        """Forget a group that is over, trained or dropped."""
        self._groups.pop(group.id, None)

    def store(self) -> tuple[dict[str, Tensor], list[list[int]]]:
        """Return tensors for a checkpoint, and `[group, ticket]` of each rollout in them."""
        places = [[group, ticket] for group, members in self._groups.items() for ticket in members]
        return store_rollouts([self._groups[group][ticket] for group, ticket in places]), places

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], places: list[list[int]]) -> RolloutBuffer:
        """Rebuild a buffer from `store` data.

        Raises:
            DataError: there is not one rollout for every place.
        """
        rollouts = restore_rollouts(tensors)
        if len(rollouts) != len(places):
            raise DataError(
                f"the checkpoint holds {len(rollouts)} rollouts for {len(places)} tickets; delete it to resume from "
                f"the one before."
            )
        buffer = cls()
        for (group, ticket), rollout in zip(places, rollouts, strict=True):
            buffer.put(group, ticket, rollout)
        return buffer
