from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import EngineError
from entr_lab.real.behaviour import COLUMNS, behaviour_columns, is_behaviour_row, read_completion, span_versions


def rows(seed: int, count: int = 3, vocabulary: int = 7, removed: int = 0) -> torch.Tensor:
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (count, vocabulary)).astype(np.float32))
    if removed:
        logits[:, :removed] = -torch.inf
    return logits.log_softmax(-1)


def output(logprobs: torch.Tensor, tokens: list[int], versions: list[int], spans: list[tuple[str, int, int]]):
    """An engine's output as the hook and the scheduler would make it, one row at a time."""
    ids: list[int] = []
    values: list[float] = []
    for row, token, version in zip(logprobs, tokens, versions, strict=True):
        row_ids, row_values = behaviour_columns(row[None], torch.tensor([token]), version)
        ids += row_ids[0].tolist()
        values += row_values[0].tolist()
    return SimpleNamespace(
        token_ids=tokens,
        logprobs=SimpleNamespace(token_ids=ids, logprobs=values),
        weight_versions=[SimpleNamespace(version=v, start=a, end=b) for v, a, b in spans],
        finish_reason="length",
    )


@given(seed=st.integers(0, 10_000), removed=st.integers(0, 4))
def test_columns_match_a_plain_float64_sum(seed: int, removed: int) -> None:
    logprobs = rows(seed, removed=removed)
    tokens = torch.tensor([6, 5, 4])
    ids, values = behaviour_columns(logprobs, tokens, 9)
    p = np.exp(logprobs.double().numpy())
    entropy = [-sum(x * np.log(x) for x in row if x > 0) for row in p]
    assert ids.tolist() == [[6, -1, -2, -3], [5, -1, -2, -3], [4, -1, -2, -3]]
    np.testing.assert_allclose(values[:, 0], logprobs[range(3), tokens], rtol=0, atol=0)
    np.testing.assert_allclose(values[:, 1], entropy, atol=2e-6)
    np.testing.assert_allclose(values[:, 2], (p**2).sum(-1), atol=1e-6)
    assert values[:, 3].tolist() == [9.0] * 3


def test_nan_log_probs_are_passed_on() -> None:
    logprobs = rows(0)
    logprobs[1] = torch.nan
    _, values = behaviour_columns(logprobs, torch.tensor([0, 1, 2]), 3)
    assert values[1, :3].isnan().all()
    assert values[1, 3] == 3.0
    assert values[[0, 2]].isfinite().all()


def test_the_largest_version_survives_float32() -> None:
    _, values = behaviour_columns(rows(0), torch.tensor([0, 1, 2]), (1 << 24) - 1)
    assert int(values[0, 3]) == (1 << 24) - 1


def test_a_row_of_top_tokens_is_not_the_hooks() -> None:
    assert is_behaviour_row([5, -1, -2, -3])
    assert not is_behaviour_row([5, 3, 2, 1])
    assert not is_behaviour_row([5, -1, -2])


def test_read_completion_takes_every_column() -> None:
    logprobs = rows(1)
    found = read_completion(output(logprobs, [6, 2, 3], [4, 4, 5], [("4", 0, 2), ("5", 2, 3)]))
    assert found.token_ids.dtype == np.int32
    assert found.token_ids.tolist() == [6, 2, 3]
    np.testing.assert_array_equal(found.logp_mu, logprobs[range(3), [6, 2, 3]])
    np.testing.assert_allclose(found.entropy_mu, torch.special.entr(logprobs.exp()).sum(-1), atol=1e-6)
    np.testing.assert_allclose(found.collision_mu, logprobs.exp().square().sum(-1), atol=1e-6)
    assert found.weight_version.tolist() == [4, 4, 5]
    assert found.finish_reason == "length"


def test_read_completion_keeps_nan() -> None:
    logprobs = rows(1)
    logprobs[2] = torch.nan
    found = read_completion(output(logprobs, [6, 2, 3], [4, 4, 4], [("4", 0, 3)]))
    assert np.isnan(found.logp_mu).tolist() == [False, False, True]
    assert np.isnan(found.entropy_mu[2])


def test_a_tag_that_disagrees_with_the_span_is_refused() -> None:
    with pytest.raises(EngineError, match="token 1 was produced by weights 5 in the worker but is labelled 4"):
        read_completion(output(rows(1), [6, 2, 3], [4, 5, 5], [("4", 0, 2), ("5", 2, 3)]))


def test_stock_log_probs_are_refused() -> None:
    stock = output(rows(1), [6, 2, 3], [4, 4, 4], [("4", 0, 3)])
    stock.logprobs.token_ids[1::4] = [1, 2, 3]
    with pytest.raises(EngineError, match="hook is not active"):
        read_completion(stock)
    stock.logprobs.token_ids = stock.logprobs.token_ids[: 3 * COLUMNS]
    with pytest.raises(EngineError, match="hook is not active"):
        read_completion(stock)


def test_log_probs_of_other_tokens_are_refused() -> None:
    shifted = output(rows(1), [6, 2, 3], [4, 4, 4], [("4", 0, 3)])
    shifted.token_ids = [2, 3, 6]
    with pytest.raises(EngineError, match="other tokens"):
        read_completion(shifted)


def test_an_aborted_empty_completion_is_empty() -> None:
    empty = SimpleNamespace(token_ids=[], logprobs=None, weight_versions=None, finish_reason="abort")
    assert len(read_completion(empty).logp_mu) == 0
    assert read_completion(empty).finish_reason == "abort"


def test_spans_must_cover_every_token_and_be_numbers() -> None:
    span = SimpleNamespace
    assert span_versions([span(version="3", start=0, end=2)], 2).tolist() == [3, 3]
    with pytest.raises(EngineError, match="cover 2 of 3"):
        span_versions([span(version="3", start=0, end=2)], 3)
    with pytest.raises(EngineError, match="cover 0 of 1"):
        span_versions(None, 1)
    with pytest.raises(EngineError, match="'default'"):
        span_versions([span(version="default", start=0, end=1)], 1)
