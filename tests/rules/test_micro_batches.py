"""One decision for one update, however it is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from entr_lab.errors import DataError, ShapeError
from entr_lab.rules import Entr, M2po, keep_micro_batches
from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import split
from tests.strategies import with_gradient


def test_no_micro_batch_is_no_update() -> None:
    with pytest.raises(ShapeError, match="at least one micro-batch, got none"):
        keep_micro_batches(Entr(), [])


def test_masks_have_the_shapes_of_their_micro_batches() -> None:
    batch = adversarial_batch(1, 50, runs=(2,))
    masks = keep_micro_batches(M2po(), [batch.block(0, 20), batch.block(20, 5), batch.block(25, 25)])
    assert [list(mask.shape) for mask in masks] == [[2, 20], [2, 5], [2, 25]]
    assert torch.equal(torch.cat(masks, dim=-1), M2po().keep(batch))


def test_batch_scope_refuses_micro_batches_of_different_updates() -> None:
    first, second = split(adversarial_batch(1, 40), 2, whole_sequences=False)
    with pytest.raises(DataError, match="micro-batches of one update must share target_version"):
        keep_micro_batches(M2po(), [first, replace(second, target_version=31)])


def test_micro_batches_with_gradient_give_masks_without() -> None:
    parts = [with_gradient(part) for part in split(adversarial_batch(1, 40), 3, whole_sequences=False)]
    for mask in keep_micro_batches(M2po(), parts) + keep_micro_batches(Entr(), parts):
        assert not mask.requires_grad
