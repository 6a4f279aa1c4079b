"""The anchor: δ = x + c whatever stands under the surrogate's ratio."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from entr_lab.errors import ConfigError
from entr_lab.objective import Anchor, log_ratios
from entr_lab.tokens import TokenBatch
from tests.strategies import batches, from_ratios, with_gradient


def _with_prox() -> TokenBatch:
    return with_gradient(from_ratios([0.3, -0.2], logp_prox=[-0.9, -1.4]))


@given(batches(spoiled=False))
def test_behaviour_anchor_holds_the_whole_ratio(batch: TokenBatch) -> None:
    ratios = log_ratios(batch, Anchor.BEHAVIOUR)
    assert torch.equal(ratios.surrogate, batch.log_ratio)
    assert (ratios.correction == 0).all()
    assert torch.equal(ratios.mismatch, batch.log_ratio)


def test_proximal_anchor_splits_the_ratio() -> None:
    batch = _with_prox()
    ratios = log_ratios(batch, Anchor.PROXIMAL)
    torch.testing.assert_close(ratios.surrogate + ratios.correction, batch.log_ratio)
    assert ratios.correction.tolist() == pytest.approx([0.1, -0.4])
    assert torch.equal(ratios.mismatch, ratios.correction)


def test_current_anchor_has_ratio_one_and_the_gradient_of_the_policy() -> None:
    batch = _with_prox()
    ratios = log_ratios(batch, Anchor.CURRENT)
    assert ratios.surrogate.tolist() == [0.0, 0.0]
    ratios.surrogate.sum().backward()  # type: ignore[no-untyped-call]
    assert batch.logp_pi.grad is not None
    assert batch.logp_pi.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("anchor", list(Anchor))
def test_only_the_surrogate_carries_gradient(anchor: Anchor) -> None:
    ratios = log_ratios(_with_prox(), anchor)
    assert ratios.surrogate.requires_grad
    assert not ratios.correction.requires_grad
    assert not ratios.mismatch.requires_grad


def test_the_proximal_anchor_needs_its_column() -> None:
    with pytest.raises(ConfigError, match="the proximal anchor needs logp_prox, which this batch lacks"):
        log_ratios(from_ratios([0.1]), Anchor.PROXIMAL)


@pytest.mark.parametrize("anchor", list(Anchor))
def test_half_precision_columns_are_subtracted_in_float32(anchor: Anchor) -> None:
    batch = from_ratios([0.3], logp_prox=[-0.9], dtype=torch.bfloat16)
    assert log_ratios(batch, anchor).surrogate.dtype == torch.float32
