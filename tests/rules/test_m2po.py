"""M2PO: Algorithm 1, exactly, for any split of the batch, without a sort."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as multiprocessing
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.objective import decide, get_method
from entr_lab.rules import M2po, keep_micro_batches
from entr_lab.rules.m2po import prefix_mean_cutoff
from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import split
from tests import reference
from tests.rules import gloo_worker
from tests.rules.cases import golden
from tests.strategies import from_ratios


def _prefix_rule(squares: np.ndarray, budget: float) -> np.ndarray:
    """The closed form of Algorithm 1: sort ascending, keep the longest prefix whose running mean is in budget."""
    order = np.argsort(squares, kind="stable")
    running = np.cumsum(squares[order]) / np.arange(1, len(squares) + 1)
    keep = np.zeros(len(squares), dtype=bool)
    keep[order[: int((running <= budget).sum())]] = True
    return keep


def test_golden_vector() -> None:
    record = golden("m2po")
    batch = from_ratios(record["log_ratio"], advantage=record["advantage"])
    keep = M2po(budget=record["budget"]).keep(batch)
    assert keep.tolist() == record["keep"]
    eligible = batch.log_ratio * batch.advantage > 0
    assert batch.log_ratio[keep & eligible].square().mean().item() == pytest.approx(record["kept_mean"], abs=1e-7)


def test_the_budget_is_inclusive() -> None:
    # Squares 1/4 and 3/4 have the mean 1/2, exactly.
    batch = from_ratios([0.5, math.sqrt(0.75)], logp_mu=[0.0, 0.0])
    assert M2po(budget=0.5).keep(batch).all()
    assert M2po(budget=0.4999).keep(batch).tolist() == [True, False]


def test_tokens_that_are_not_eligible_never_count() -> None:
    batch = from_ratios([5.0, -5.0, 5.0, 0.0, 0.1], advantage=[-1.0, 1.0, 0.0, 1.0, 1.0])
    assert M2po(budget=0.02).keep(batch).all()


def test_equal_squares_go_together() -> None:
    batch = from_ratios([0.1, 0.5, 0.5, -0.5], advantage=[1.0, 1.0, 1.0, -1.0], logp_mu=[-1.0] * 4)
    assert M2po(budget=0.1).keep(batch).tolist() == [True, False, False, False]


@given(st.integers(0, 10**6), st.integers(1, 400), st.sampled_from((1e-6, 0.01, 0.04, 0.5, 30.0)))
def test_equals_the_sorted_prefix_on_distinct_values(seed: int, n_tokens: int, budget: float) -> None:
    generator = np.random.default_rng(seed)
    delta = np.abs(generator.standard_normal(n_tokens)) * 10.0 ** generator.uniform(-4, 1, n_tokens)
    batch = from_ratios(delta.tolist(), logp_mu=[0.0] * n_tokens)
    squares = batch.log_ratio.numpy() ** 2
    sharp = [_prefix_rule(squares, budget * slack) for slack in (1.0 - 1e-5, 1.0, 1.0 + 1e-5)]
    if (sharp[0] == sharp[2]).all():
        assert M2po(budget=budget).keep(batch).tolist() == sharp[1].tolist()


def test_the_twin_agrees_with_the_closed_form() -> None:
    delta = np.abs(np.random.default_rng(3).standard_normal(200))
    rows = [reference.Row(value, 0.0, 1.0, 1.0, math.nan) for value in delta]
    expected = _prefix_rule(np.float32(delta).astype(float) ** 2, 0.3)
    assert reference.m2po(rows, 0.3) == expected.tolist()


def test_a_hundred_thousand_tokens_against_a_sort() -> None:
    delta = np.random.default_rng(5).standard_normal(100_000) * 0.4
    batch = from_ratios(delta.tolist(), logp_mu=[0.0] * len(delta), advantage=np.sign(delta).tolist())
    keep = M2po().keep(batch).numpy()
    expected = _prefix_rule(batch.log_ratio.float().square().double().numpy(), 0.04)
    assert 0.3 < expected.mean() < 0.99
    assert (keep != expected).sum() <= 1  # the mean is counted in budget/2^20


def test_the_kept_mean_is_in_budget_and_one_more_class_would_exceed_it() -> None:
    batch = adversarial_batch(13, 2000)
    keep = M2po().keep(batch)
    eligible = (batch.log_ratio * batch.advantage > 0) & batch.valid & batch.log_ratio.isfinite()
    squares = batch.log_ratio.square().double()
    kept, dropped = squares[keep & eligible], squares[eligible & ~keep]
    assert kept.mean() <= 0.04 * (1 + 1e-6)
    assert kept.max() < dropped.min()
    again = torch.cat((kept, dropped[dropped == dropped.min()]))
    assert again.mean() > 0.04


@pytest.mark.parametrize("n_parts", [1, 2, 3, 17, 64])
def test_micro_batches_do_not_change_the_mask(n_parts: int) -> None:
    batch = adversarial_batch(2, 640)
    masks = keep_micro_batches(M2po(), split(batch, n_parts, whole_sequences=False))
    assert torch.equal(torch.cat(masks), M2po().keep(batch))


def test_each_micro_batch_alone_would_decide_otherwise() -> None:
    batch = adversarial_batch(2, 640)
    alone = torch.cat([M2po().keep(part) for part in split(batch, 17, whole_sequences=False)])
    assert not torch.equal(alone, M2po().keep(batch))


def test_two_real_processes_decide_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    multiprocessing.spawn(gloo_worker.run, args=(str(tmp_path),), nprocs=2)
    parts = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    whole = decide(get_method("m2po"), gloo_worker.batch_of(None))
    assert torch.equal(torch.cat([keep for keep, _ in parts]), whole.keep)
    assert 0 < (~whole.keep).sum() < 301
    for _, coefficient in parts:
        assert torch.equal(coefficient, whole.coefficient)


def test_neither_sort_nor_topk_nor_quantile_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("M2PO selects by counting")

    batch = adversarial_batch(2, 640)
    for name in ("sort", "argsort", "topk", "kthvalue", "msort", "quantile", "median", "unique"):
        monkeypatch.setattr(torch, name, refuse)
        if hasattr(torch.Tensor, name):
            monkeypatch.setattr(torch.Tensor, name, refuse)
    M2po().keep(batch)


def test_a_token_that_comes_closer_can_drop_another() -> None:
    """Batch scope is real: the rule couples tokens, which is why `scope` says so."""
    rule = M2po(budget=0.035)  # mean of squares .0303, then .0404 once the first token is no longer eligible
    assert rule.keep(from_ratios([0.10, 0.28, 0.05], logp_mu=[-1.0] * 3)).tolist() == [True, True, True]
    assert rule.keep(from_ratios([0.00, 0.28, 0.05], logp_mu=[-1.0] * 3)).tolist() == [True, False, True]


def test_cutoff_is_infinite_where_nothing_is_eligible_or_all_fits() -> None:
    squares = torch.tensor([[1.0, 2.0], [0.01, 0.02], [1.0, 2.0]])
    eligible = torch.tensor([[False, False], [True, True], [True, True]])
    cutoff = prefix_mean_cutoff(squares, eligible, 0.04, lambda total: total)
    assert cutoff.tolist() == [math.inf, math.inf, 1.0]


def test_squares_that_overflow_float32_are_dropped() -> None:
    batch = from_ratios([0.1, 1e25], logp_mu=[0.0, 0.0])
    assert M2po().keep(batch).tolist() == [True, False]


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan])
def test_budget_out_of_bounds(budget: float) -> None:
    with pytest.raises(RangeError, match=r"budget must lie in \(0, 1e\+18\]"):
        M2po(budget=budget)
