"""Rollouts as one row of tokens without padding, and how they are cut into mini- and micro-batches.

Sequences lie one after another in one row `[1, L]`; `position_ids` start again at 0 for each, which is how Hugging
Face models tell packed sequences apart (block-diagonal attention). Every cut is a function of the lengths alone, so
that all processes of a job agree on it without talking to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.real.records import Rollout

__all__ = ["PackedTokens", "micro_batches", "mini_batches", "pack", "packed_length"]


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """Model inputs of some sequences, and which of their tokens to score.

    Args:
        input_ids: `[1, L]` int64.
        position_ids: `[1, L]` int64, from 0 within each sequence.
        predict_at: `[N]` int64, where in the row the distribution of token n stands: the place before it.
        targets: `[N]` int64 ids of the tokens to score.
    """

    input_ids: Tensor
    position_ids: Tensor
    predict_at: Tensor
    targets: Tensor

    def to(self, device: torch.device | str) -> PackedTokens:
        """Return the same on another device."""
        return PackedTokens(
            self.input_ids.to(device), self.position_ids.to(device), self.predict_at.to(device), self.targets.to(device)
        )


def packed_length(rollout: Rollout) -> int:
    """Return the number of model inputs of a rollout; its last token is predicted, never fed."""
    return len(rollout.prompt_ids) + len(rollout.token_ids) - 1


def pack(rollouts: Sequence[Rollout]) -> PackedTokens:
    """Lay sequences side by side; all trainable tokens are scored, in order.

    Raises:
        DataError: a prompt is empty, or no token of a rollout is trainable.
    """
    inputs, positions, places, targets = [], [], [], []
    start = 0
    for rollout in rollouts:
        n_prompt, trainable = len(rollout.prompt_ids), np.flatnonzero(rollout.trainable)
        if not n_prompt or not len(trainable):
            raise DataError(
                f"rollout of sample {rollout.sample.get('id')!r} has {n_prompt} prompt tokens and {len(trainable)} "
                f"trainable ones; both must be at least 1, so report it as failed instead."
            )
        length = packed_length(rollout)
        inputs.append(np.concatenate([rollout.prompt_ids, rollout.token_ids])[:length])
        positions.append(np.arange(length))
        places.append(start + n_prompt - 1 + trainable)
        targets.append(rollout.token_ids[trainable])
        start += length
    row, position, place, target = (
        torch.from_numpy(np.concatenate(parts).astype(np.int64)) for parts in (inputs, positions, places, targets)
    )
    return PackedTokens(row[None], position[None], place, target)


def mini_batches(group_sizes: Sequence[int], count: int) -> list[list[int]]:
    """Cut whole groups into `count` neighbouring parts, one optimiser step each; return indices of sequences.

    Raises:
        DataError: there are fewer groups than parts.
    """
    if len(group_sizes) < count:
        raise DataError(f"{len(group_sizes)} groups cannot make {count} mini-batches; lower trainer.mini_batches.")
    stops = np.concatenate([[0], np.cumsum(group_sizes)])
    cuts = [round(part * len(group_sizes) / count) for part in range(count + 1)]
    return [list(range(stops[low], stops[high])) for low, high in pairwise(cuts)]


def micro_batches(lengths: Sequence[int], budget: int, processes: int = 1) -> list[list[list[int]]]:
    """Spread sequences over processes and micro-batches of about `budget` tokens.

    Every process gets the same number of micro-batches, none of them empty, since in a job each forward pass is a
    collective. The longest sequence goes first to the emptiest bin. A sequence longer than the budget goes alone.

    Returns:
        For each process, its micro-batches, each a sorted list of indices into `lengths`.

    Raises:
        DataError: there are fewer sequences than processes.
    """
    if len(lengths) < processes:
        raise DataError(
            f"{len(lengths)} sequences cannot be spread over {processes} training processes; use larger batches."
        )
    most = len(lengths) // processes
    count = min(most, max(1, -(-sum(lengths) // (processes * budget))))
    while True:
        bins, loads = _fill(lengths, count * processes)
        if count == most or max(loads) <= max(budget, max(lengths)):
            break
        count += 1
    return [[sorted(bins[micro * processes + rank]) for micro in range(count)] for rank in range(processes)]


def _fill(lengths: Sequence[int], n_bins: int) -> tuple[list[list[int]], list[int]]:
    bins: list[list[int]] = [[] for _ in range(n_bins)]
    loads = [0] * n_bins
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        emptiest = min(range(n_bins), key=lambda b: (loads[b], b))
        bins[emptiest].append(index)
        loads[emptiest] += lengths[index]
    return bins, loads
