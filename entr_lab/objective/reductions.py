"""Reductions: the denominator, named, and counted over the whole update.

Every reduction is a sum of per-token contributions times a coefficient that is known before any gradient: losses of
micro-batches and of processes then add up to the loss of the undivided batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from entr_lab.errors import ConfigError, check_member, check_range
from entr_lab.rules import Reduce, local
from entr_lab.tokens import TokenBatch

__all__ = ["Denominator", "Reduction", "coefficients"]


class Denominator(StrEnum):
    """What a summed loss is divided by.

    `token-mean`: all trainable tokens, kept or not (the ENTR paper, DAPO, M2PO's footnote 2).
    `token-mean-kept`: kept tokens only; scales the gradient by 1/(kept fraction).
    `seq-mean-token-mean`: mean over sequences of the mean over all of a sequence's tokens (GRPO).
    `seq-mean-token-sum`: mean over sequences of the sum over tokens.
    `constant`: a fixed number (Dr. GRPO).
    """

    TOKEN_MEAN = "token-mean"
    TOKEN_MEAN_KEPT = "token-mean-kept"
    SEQ_MEAN_TOKEN_MEAN = "seq-mean-token-mean"
    SEQ_MEAN_TOKEN_SUM = "seq-mean-token-sum"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """A named denominator.

    Args:
        denominator: see `Denominator`.
        constant: the divisor of `constant`, required there and refused elsewhere.

    Raises:
        ConfigError: the constant is missing or superfluous.
        RangeError: it is not positive.
    """

    denominator: Denominator = Denominator.TOKEN_MEAN
    constant: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "denominator", check_member("denominator", self.denominator, Denominator))
        if (self.constant is not None) is not (self.denominator is Denominator.CONSTANT):
            raise ConfigError(
                f"constant goes with the denominator 'constant' and only there, got constant={self.constant} "
                f"with {self.denominator.value!r}."
            )
        if self.constant is not None:
            check_range("constant", self.constant, low=1e-30, high=1e30)  # its reciprocal must be a float32


def coefficients(reduction: Reduction, batch: TokenBatch, keep: Tensor, reduce: Reduce = local) -> Tensor:
    """Return what each token's contribution is multiplied by, broadcastable to `[..., N]`.

    Args:
        reduction: the named denominator.
        batch: all tokens of the update that this process holds; whole sequences.
        keep: `[..., N]` bool.
        reduce: sums counts over processes.
    """
    kind = reduction.denominator
    if kind is Denominator.CONSTANT and reduction.constant is not None:
        return torch.tensor(1.0 / reduction.constant, device=keep.device)
    if kind in (Denominator.TOKEN_MEAN, Denominator.TOKEN_MEAN_KEPT):
        counted = torch.ones_like(keep) if kind is Denominator.TOKEN_MEAN else keep
        count = reduce(counted.sum(-1, keepdim=True).double())
        return count.clamp(min=1.0).reciprocal().float()
    length, n_sequences = _sequence_lengths(batch.sequence)
    per_sequence = reduce(n_sequences.double()).reciprocal()
    if kind is Denominator.SEQ_MEAN_TOKEN_SUM:
        return per_sequence.float()
    return (per_sequence / length).float()


def _sequence_lengths(sequence: Tensor) -> tuple[Tensor, Tensor]:
    """Return each token's sequence length `[..., N]` and the number of sequences `[..., 1]`; ids are local to a run."""
    rows = sequence.reshape(-1, sequence.shape[-1])
    lengths, counts = [], []
    for row in rows:
        _, inverse, count = torch.unique(row, return_inverse=True, return_counts=True)
        lengths.append(count[inverse])
        counts.append(len(count))
    n_sequences = torch.tensor(counts, device=sequence.device).view(*sequence.shape[:-1], 1)
    return torch.stack(lengths).view(sequence.shape), n_sequences
