"""One decision for one update, however the update is cut into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entr_lab.errors import ShapeError
from entr_lab.rules.base import KeepRule, Reduce, Scope, local
from entr_lab.tokens import TokenBatch, concatenate

__all__ = ["keep_micro_batches"]


def keep_micro_batches(rule: KeepRule, batches: Sequence[TokenBatch], reduce: Reduce = local) -> list[Tensor]:
    """Return one mask per micro-batch, equal to the mask of the undivided batch cut the same way.

    A rule of token scope decides each micro-batch alone. A rule of sequence or batch scope sees their columns side by
    side: a few numbers per token, beside which a micro-batch's activations are large.

    Raises:
        ShapeError: no micro-batch is given.
    """
    if not batches:
        raise ShapeError("an update needs at least one micro-batch, got none.")
    if rule.scope is Scope.TOKEN or len(batches) == 1:
        return [rule.keep(batch, reduce) for batch in batches]
    whole = concatenate([batch.detach() for batch in batches])
    return list(torch.split(rule.keep(whole, reduce), [batch.n_tokens for batch in batches], dim=-1))
