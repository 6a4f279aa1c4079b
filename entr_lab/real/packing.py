"""Rollouts as rows of tokens, several sequences in a row, and how they are cut into mini- and micro-batches.

`position_ids` start again at 0 for each sequence, which is how Hugging Face models tell packed sequences apart
(block-diagonal attention). Attention with a dense mask costs the square of a row's length, so rows are then as short as
the longest sequence; variable-length kernels take one row without padding. Every cut is a function of the lengths
alone, so that all processes of a job agree on it without talking to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.real.records import Rollout

__all__ = ["PackedTokens", "assemble", "micro_batches", "mini_batches", "pack", "packed_length"]


@dataclass(frozen=True, slots=True)
class PackedTokens:
    """Model inputs of some sequences, and which of their tokens to score.

    Args:
        input_ids: `[R, L]` int64.
        position_ids: `[R, L]` int64, from 0 within each sequence, and within the padding at the end of a row.
        predict_at: `[N]` int64, where in the flattened rows the distribution of token n stands: the place before it.
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


def assemble(sequences: Sequence[NDArray[Any]], short_rows: bool) -> tuple[Tensor, Tensor, list[int]]:
    """Lay sequences into rows, the longest first, each into the first row with room.

    Args:
        sequences: token ids.
        short_rows: rows as long as the longest sequence; otherwise one row.

    Returns:
        Input ids `[R, L]`, position ids `[R, L]`, and where in the flattened rows each sequence starts.
    """
    lengths = [len(sequence) for sequence in sequences]
    width = max(lengths) if short_rows else sum(lengths)
    starts, filled = [0] * len(sequences), list[int]()
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)) if short_rows else range(len(lengths)):
        row = next((row for row, used in enumerate(filled) if used + lengths[index] <= width), len(filled))
        if row == len(filled):
            filled.append(0)
        starts[index] = row * width + filled[row]
        filled[row] += lengths[index]
    inputs, positions = np.zeros((2, len(filled), width), dtype=np.int64)
    for row, used in enumerate(filled):
        positions[row, used:] = np.arange(width - used)
    for start, sequence in zip(starts, sequences, strict=True):
        inputs.reshape(-1)[start : start + len(sequence)] = sequence
        positions.reshape(-1)[start : start + len(sequence)] = np.arange(len(sequence))
    return torch.from_numpy(inputs), torch.from_numpy(positions), starts


def pack(rollouts: Sequence[Rollout], short_rows: bool = False) -> PackedTokens:
    """Lay rollouts side by side; all trainable tokens are scored, in order.

    Args:
        rollouts: sequences.
        short_rows: see `assemble`.

    Raises:
        DataError: a prompt is empty, or no token of a rollout is trainable.
    """
    trainable = [np.flatnonzero(rollout.trainable) for rollout in rollouts]
    for rollout, found in zip(rollouts, trainable, strict=True):
        if not len(rollout.prompt_ids) or not len(found):
            raise DataError(
                f"rollout of sample {rollout.sample.get('id')!r} has {len(rollout.prompt_ids)} prompt tokens and "
                f"{len(found)} trainable ones; both must be at least 1, so report it as failed instead."
            )
    inputs, positions, starts = assemble(
        [np.concatenate([rollout.prompt_ids, rollout.token_ids])[: packed_length(rollout)] for rollout in rollouts],
        short_rows,
    )
    places = [s + len(r.prompt_ids) - 1 + t for s, r, t in zip(starts, rollouts, trainable, strict=True)]
    targets = [r.token_ids[t] for r, t in zip(rollouts, trainable, strict=True)]
    place, target = (torch.from_numpy(np.concatenate(parts).astype(np.int64)) for parts in (places, targets))
    return PackedTokens(inputs, positions, place, target)


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
