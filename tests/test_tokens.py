"""The record: what it refuses, what it derives, and how it is cut, joined and padded."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import DataError, ShapeError
from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import COLUMNS, split
from entr_lab.tokens import Column, TokenBatch, concatenate, from_padded, promote, to_padded
from tests.strategies import DTYPES, batches, build, from_ratios, with_gradient


def _columns(n_tokens: int = 3, **changes: Any) -> dict[str, Any]:
    floats = torch.full((n_tokens,), -1.0)
    integers = torch.zeros(n_tokens, dtype=torch.int64)
    return {
        "logp_pi": floats,
        "logp_mu": floats,
        "entropy_mu": -floats,
        "advantage": floats,
        "sequence": integers,
        "group": integers,
        "weight_version": integers,
        "target_version": 5,
        **changes,
    }


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"logp_mu": torch.zeros(2)}, ShapeError, r"logp_mu must have the shape of logp_pi \[3\], got \[2\]; pack all"),
        ({"logp_pi": torch.zeros(0)}, ShapeError, r"logp_pi must have shape \[..., N\] with N >= 1, got \[0\]; drop"),
        ({"logp_pi": torch.tensor(0.0)}, ShapeError, r"logp_pi must have shape \[..., N\] with N >= 1, got \[\]"),
        ({"entropy_mu": torch.zeros(3, dtype=torch.int64)}, ShapeError, "entropy_mu must have a floating dtype, got"),
        ({"sequence": torch.zeros(3)}, ShapeError, r"sequence must have int64, got torch.float32; convert it"),
        ({"group": torch.zeros(3, dtype=torch.int32)}, ShapeError, r"group must have int64, got torch.int32"),
        ({"turn": torch.zeros(3, dtype=torch.bool)}, ShapeError, r"turn must have int64, got torch.bool"),
        ({"collision_mu": torch.zeros(4)}, ShapeError, r"collision_mu must have the shape of logp_pi \[3\], got \[4\]"),
        ({"logp_mu": torch.zeros(3, requires_grad=True)}, ShapeError, "logp_mu carries gradient; only logp_pi may"),
        ({"advantage": torch.zeros(3, device="meta")}, ShapeError, "advantage lies on meta, logp_pi on cpu; move one"),
        ({"logp_mu": torch.tensor([-1.0, 0.5, -1.0])}, DataError, "logp_mu must be <= 0 nats, got 0.5 among 1 tokens"),
        ({"entropy_mu": torch.tensor([1.0, -0.5, -0.2])}, DataError, "entropy_mu must be >= 0 nats, got -0.5 among 2"),
        ({"advantage": torch.tensor([1.0, math.nan, math.inf])}, DataError, "advantage must be finite, got 2 NaN or"),
        (
            {"weight_version": torch.tensor([0, 6, 1])},
            DataError,
            "weight_version must not exceed target_version, got 6",
        ),
        ({"target_version": torch.tensor([5, 5])}, ShapeError, r"broadcast to the runs \[\], got \[2\]; pass one"),
    ],
)
def test_a_bad_column_is_named_with_what_was_expected_and_what_to_do(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        TokenBatch(**_columns(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"logp_pi": None}, "logp_pi must be a torch.Tensor, got NoneType"),
        ({"logp_mu": [-1.0, -1.0, -1.0]}, "logp_mu must be a torch.Tensor, got list"),
        ({"turn": 3}, "turn must be a torch.Tensor or None, got int"),
        ({"target_version": 5.5}, "target_version must be an int or an int64 tensor, got float"),
        ({"target_version": None}, "target_version must be an int or an int64 tensor, got NoneType"),
        ({"target_version": torch.tensor(5.0)}, "target_version must be an int or an int64 tensor, got torch.float32"),
    ],
)
def test_what_is_no_column_or_no_version_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        TokenBatch(**_columns(**changes))


def test_rounding_errors_of_probabilities_are_tolerated() -> None:
    batch = TokenBatch(**_columns(logp_mu=torch.full((3,), 5e-4), entropy_mu=torch.full((3,), -5e-4)))
    assert batch.valid.all()


def test_non_finite_records_are_rows_that_are_not_valid_and_are_counted() -> None:
    mu = torch.tensor([math.nan, -1.0, -math.inf, -1.0, -1.0])
    entropy = torch.tensor([1.0, math.inf, 1.0, math.nan, 1.0])
    batch = TokenBatch(**_columns(5, logp_mu=mu, entropy_mu=entropy))
    assert batch.valid.tolist() == [False, False, False, False, True]
    assert batch.n_unrecorded.item() == 4
    assert batch.n_tokens == 5


def test_one_target_version_per_run() -> None:
    runs = adversarial_batch(0, 4, runs=(2, 3))
    batch = replace(runs, target_version=torch.tensor([[30, 31, 32], [33, 34, 35]]))
    assert torch.equal(batch.staleness[1, 2], 35 - batch.weight_version[1, 2])
    assert torch.equal(batch.runs(1).runs(2).staleness, batch.staleness[1, 2])
    with pytest.raises(ShapeError, match=r"broadcast to the runs \[2, 3\], got \[2\]"):
        replace(runs, target_version=torch.tensor([30, 30]))


# ---------------------------------------------------------------------------------------------- derived columns


@given(batches(dtypes=DTYPES))
def test_log_ratio_is_formed_in_float32_or_better(batch: TokenBatch) -> None:
    expected = batch.logp_pi.double() - batch.logp_mu.double()
    wide = torch.promote_types(batch.logp_pi.dtype, torch.float32)
    assert batch.log_ratio.dtype == wide
    torch.testing.assert_close(batch.log_ratio, expected.to(wide), equal_nan=True)


def test_log_ratio_carries_the_gradient_of_logp_pi_and_detach_removes_it() -> None:
    batch = with_gradient(from_ratios([0.1, 0.2]))
    assert batch.log_ratio.requires_grad
    assert not batch.detach().log_ratio.requires_grad
    assert batch.logp_pi.requires_grad  # the original is untouched
    plain = from_ratios([0.1])
    assert plain.detach() is plain


def test_staleness_is_target_minus_weight_version_per_token() -> None:
    batch = build({"logp_mu": [-1.0] * 3, "logp_pi": [-1.0] * 3, "weight_version": [30, 12, 0]}, target_version=30)
    assert batch.staleness.tolist() == [0, 18, 30]


@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion(dtype: torch.dtype) -> None:
    column = torch.tensor([-2.0], dtype=dtype)
    assert promote(column).dtype == torch.promote_types(dtype, torch.float32)


# ---------------------------------------------------------------------------------------------- cutting and joining


@pytest.mark.parametrize("n_parts", [1, 2, 5, 23])
def test_split_and_concatenate_are_inverse(n_parts: int) -> None:
    joined = concatenate(split(adversarial_batch(0, 23), n_parts, whole_sequences=False))
    whole = adversarial_batch(0, 23)
    for name in COLUMNS:
        left, right = getattr(joined, name), getattr(whole, name)
        assert torch.equal(left.nan_to_num(9.0), right.nan_to_num(9.0))


def test_blocks_are_views() -> None:
    batch = adversarial_batch(0, 20)
    block = batch.block(5, 7)
    assert block.n_tokens == 7
    assert block.logp_mu.data_ptr() == batch.logp_mu[5:].data_ptr()


@pytest.mark.parametrize("length", [1, 7, 20, 50])
def test_blocks_cover_the_batch_as_views(length: int) -> None:
    batch = replace(adversarial_batch(0, 20, runs=(2,)), turn=None)
    blocks = list(batch.blocks(length))
    assert [block.n_tokens for block in blocks] == [min(length, 20 - start) for start in range(0, 20, length)]
    assert blocks[-1].turn is None
    assert blocks[-1].target_version == batch.target_version
    for name in set(COLUMNS) - {"turn"}:
        joined = torch.cat([getattr(block, name) for block in blocks], dim=-1)
        assert torch.equal(joined.nan_to_num(9.0), getattr(batch, name).nan_to_num(9.0))
    assert blocks[0].logp_mu.data_ptr() == batch.logp_mu.data_ptr()


def test_concatenation_keeps_gradients() -> None:
    parts = [with_gradient(part) for part in split(from_ratios([0.1, 0.2, 0.3]), 2, whole_sequences=False)]
    concatenate(parts).log_ratio.sum().backward()  # type: ignore[no-untyped-call]
    assert [part.logp_pi.grad.tolist() for part in parts] == [[1.0], [1.0, 1.0]]  # type: ignore[union-attr]


def test_what_cannot_be_joined() -> None:
    first = from_ratios([0.1], collision_mu=[0.5])
    with pytest.raises(ShapeError, match="collision_mu is present in 1 of 2 micro-batches; record it in all"):
        concatenate([first, from_ratios([0.2])])
    with pytest.raises(DataError, match="micro-batches of one update must share target_version"):
        concatenate([first, replace(first, target_version=31)])


def test_batches_of_other_runs_or_none_at_all_are_refused() -> None:
    with pytest.raises(ShapeError, match="at least one TokenBatch, got none"):
        concatenate([])
    one = TokenBatch(**_columns())
    columns = {name: value[None] for name, value in _columns().items() if name != "target_version"}
    with pytest.raises(ShapeError, match=r"leading axes \[\], got \[1\]"):
        concatenate([one, TokenBatch(target_version=5, **columns)])


def test_a_single_run_has_no_runs_to_select() -> None:
    with pytest.raises(ShapeError, match="a batch without leading axes has no runs to select"):
        from_ratios([0.1]).runs(0)
    assert adversarial_batch(0, 5, runs=(4,)).runs(slice(1, 3)).logp_pi.shape == (2, 5)


def test_missing_columns_are_listed_in_order() -> None:
    needs = frozenset({Column.TURN, Column.COLLISION_MU, Column.LOGP_MU})
    assert from_ratios([0.1]).missing(needs) == ["collision_mu", "turn"]


# ---------------------------------------------------------------------------------------------- padding


def _padded(mask: torch.Tensor, **changes: Any) -> dict[str, Any]:
    value = torch.arange(mask.numel(), dtype=torch.float32).view(mask.shape)
    return {
        "logp_pi": -value,
        "logp_mu": -value,
        "entropy_mu": value,
        "advantage": torch.arange(mask.shape[0], dtype=torch.float32),
        "group": torch.arange(mask.shape[0]) // 2,
        "weight_version": torch.zeros(mask.shape, dtype=torch.int64),
        **changes,
    }


@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5).filter(lambda m: any(map(any, m)))
)
def test_packing_and_padding_are_inverse(rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    batch = from_padded(mask, target_version=3, **_padded(mask))
    assert batch.n_tokens == int(mask.sum())
    padded = to_padded(batch.entropy_mu, mask, fill=-7.0)
    assert torch.equal(padded[mask], _padded(mask)["entropy_mu"][mask])
    assert (padded[~mask] == -7.0).all()
    assert batch.sequence.tolist() == [row for row, kept in enumerate(rows) for value in kept if value]


def test_padding_never_enters_even_if_it_is_not_finite() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    logp_mu = torch.tensor([[-1.0, math.nan], [-2.0, -3.0]])
    batch = from_padded(mask, target_version=3, **_padded(mask, logp_mu=logp_mu))
    assert batch.valid.all()
    assert batch.logp_mu.tolist() == [-1.0, -2.0, -3.0]
    assert batch.advantage.tolist() == [0.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("mask", "changes", "message"),
    [
        (torch.ones(2, 2), {}, r"mask must be bool \[B, T\], got torch.float32 \[2, 2\]"),
        (torch.ones(4, dtype=torch.bool), {}, r"mask must be bool \[B, T\], got torch.bool \[4\]"),
        (torch.zeros(2, 2, dtype=torch.bool), {}, "mask selects no token; .* so skip it"),
        (
            torch.ones(2, 2, dtype=torch.bool),
            {"entropy_mu": torch.zeros(2, 3)},
            r"entropy_mu must be \[B, T\] = \[2, 2\]",
        ),
    ],
)
def test_padded_columns_that_do_not_fit(mask: torch.Tensor, changes: dict[str, Any], message: str) -> None:
    shape = torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(ShapeError, match=message):
        from_padded(mask, target_version=3, **_padded(shape, **changes))


def test_values_must_match_the_mask_they_return_to() -> None:
    with pytest.raises(ShapeError, match=r"values must be \[2\], one for each True of the mask, got \[3\]"):
        to_padded(torch.zeros(3), torch.tensor([[True, True, False]]))


def test_rows_of_later_micro_batches_are_numbered_on() -> None:
    """Two micro-batches of two rows are four sequences, not two."""
    mask = torch.ones(2, 3, dtype=torch.bool)
    flat, ids = torch.full((2, 3), -1.0), torch.zeros(2, 3, dtype=torch.int64)
    columns = {"logp_pi": flat, "logp_mu": flat, "entropy_mu": -flat, "advantage": flat}
    columns |= {"group": ids, "weight_version": ids}

    whole = concatenate([from_padded(mask, target_version=1, first_sequence=2 * i, **columns) for i in range(2)])

    assert whole.sequence.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
