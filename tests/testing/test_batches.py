"""The sampler has in it what it promises, and the same every time."""

from __future__ import annotations

import math

import pytest
import torch

from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import COLUMNS, FLOATS, cast, column, one_per_run, repeat, split, take


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.nan_to_num(7.0, 8.0, 9.0), right.nan_to_num(7.0, 8.0, 9.0))


def test_same_seed_same_batch_and_the_global_stream_is_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second, other = adversarial_batch(4), adversarial_batch(4), adversarial_batch(5)
    assert torch.equal(torch.rand(1), expected)
    assert all(_same(column(first, name), column(second, name)) for name in COLUMNS)
    assert not _same(first.logp_pi, other.logp_pi)


def test_holds_every_kind_of_trouble() -> None:
    batch = adversarial_batch(0, 2000)
    delta = batch.log_ratio
    assert (delta == 0).sum() > 100
    assert (batch.entropy_mu == 0).sum() > 100
    assert (batch.advantage == 0).sum() > 100
    assert ((batch.logp_mu > -1e-7) & batch.valid).sum() > 20
    assert delta[delta.isfinite()].abs().max() > 5
    for name in ("logp_pi", "logp_mu", "entropy_mu"):
        values = column(batch, name)
        assert values.isnan().any()
        assert (values == math.inf).any()
        assert (values == -math.inf).any()
    assert 0.05 < (~batch.valid).float().mean() < 0.25
    rows = torch.stack((batch.logp_mu, batch.logp_pi, batch.entropy_mu))[:, batch.valid & delta.isfinite()]
    assert len(torch.unique(rows, dim=1).T) < 0.95 * rows.shape[1]  # ties


def test_without_spoiled_records_all_is_finite() -> None:
    batch = adversarial_batch(0, 500, spoiled=False)
    assert all(column(batch, name).isfinite().all() for name in FLOATS)


def test_collision_probability_respects_the_entropy() -> None:
    batch = adversarial_batch(0, 500, spoiled=False)
    assert (batch.collision_mu >= (-batch.entropy_mu).exp() - 1e-6).all()  # type: ignore[operator]
    assert (batch.collision_mu <= 1.0 + 1e-6).all()  # type: ignore[operator]


def test_shapes_and_dtypes_as_asked() -> None:
    batch = adversarial_batch(1, 9, runs=(2, 3), dtype=torch.float64)
    assert batch.logp_pi.shape == (2, 3, 9)
    assert batch.logp_mu.dtype == torch.float64
    assert cast(batch, torch.bfloat16).entropy_mu.dtype == torch.bfloat16


def test_variations_keep_the_tokens() -> None:
    batch = adversarial_batch(1, 9, spoiled=False)
    assert one_per_run(batch).logp_pi.shape == (9, 1)
    assert torch.equal(repeat(batch, 4).logp_mu[3], batch.logp_mu)
    order = torch.tensor([2, 0, 1])
    assert torch.equal(take(batch, order).logp_mu, batch.logp_mu[order])


@pytest.mark.parametrize("n_parts", [1, 3, 17, 40])
@pytest.mark.parametrize("whole_sequences", [True, False])
def test_a_split_is_complete_and_respects_sequences(n_parts: int, whole_sequences: bool) -> None:
    batch = adversarial_batch(3, 40, spoiled=False)
    parts = split(batch, n_parts, whole_sequences=whole_sequences)
    assert len(parts) <= n_parts
    assert torch.equal(torch.cat([part.logp_mu for part in parts]), batch.logp_mu)
    if whole_sequences:
        seen = [set(part.sequence.tolist()) for part in parts]
        assert sum(len(ids) for ids in seen) == len(set.union(*seen))
