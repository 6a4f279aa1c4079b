"""Simulated processes sum over all ranks, keep the order of calls, and report what fails on one of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from entr_lab.rules import KeepAll, M2po, Reduce
from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import split
from entr_lab.testing.processes import keep_on_processes
from entr_lab.tokens import TokenBatch


class Counting:
    """Stands for a rule: drops all unless `reduce` twice returned the number of ranks."""

    def __init__(self, n_ranks: int, n_calls: dict[int, int] | None = None) -> None:
        self.n_ranks, self.n_calls = n_ranks, n_calls or {}

    def keep(self, batch: TokenBatch, reduce: Reduce) -> Tensor:
        sums = [reduce(torch.ones(2)) for _ in range(self.n_calls.get(batch.n_tokens, 2))]
        return torch.full((batch.n_tokens,), all(total.eq(self.n_ranks).all() for total in sums))


def test_reduce_sums_over_all_ranks_every_time() -> None:
    parts = split(adversarial_batch(0, 30), 3, whole_sequences=False)
    masks = keep_on_processes(Counting(3), parts)  # type: ignore[arg-type]
    assert [len(mask) for mask in masks] == [10, 10, 10]
    assert torch.cat(masks).all()


def test_masks_come_back_in_order() -> None:
    batch = adversarial_batch(0, 31)
    masks = keep_on_processes(M2po(), split(batch, 2, whole_sequences=False))
    assert torch.equal(torch.cat(masks), M2po().keep(batch))
    assert keep_on_processes(KeepAll(), [batch])[0].shape == (31,)


def test_unequal_numbers_of_calls_are_reported() -> None:
    parts = split(adversarial_batch(0, 31), 2, whole_sequences=False)
    with pytest.raises(AssertionError, match="every process must call reduce equally often"):
        keep_on_processes(Counting(2, {15: 1}), parts, patience_s=0.2)  # type: ignore[arg-type]


def test_a_failure_on_one_rank_is_reported_and_does_not_hang_the_others() -> None:
    class Failing(Counting):
        def keep(self, batch: TokenBatch, reduce: Reduce) -> Tensor:
            if batch.n_tokens == 15:
                raise ValueError("rank 0 is broken")
            return super().keep(batch, reduce)

    parts = split(adversarial_batch(0, 31), 2, whole_sequences=False)
    with pytest.raises(AssertionError, match="keep failed on a part of the batch: ValueError"):
        keep_on_processes(Failing(2), parts)  # type: ignore[arg-type]
