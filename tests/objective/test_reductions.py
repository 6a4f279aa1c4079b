"""Denominators against loops, named, global, and additive over micro-batches and processes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.objective import Denominator, Reduction, coefficients
from entr_lab.tokens import TokenBatch
from tests import reference
from tests.strategies import from_ratios

REDUCTIONS = [
    Reduction(denominator=kind, constant=50.0 if kind is Denominator.CONSTANT else None) for kind in Denominator
]
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.denominator.value)


@every_reduction
@given(tokens=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_equals_the_naive_twin(reduction: Reduction, tokens: list[tuple[int, bool]]) -> None:
    sequence, keep = [ident for ident, _ in tokens], [kept for _, kept in tokens]
    batch = from_ratios([0.0] * len(tokens), sequence=sequence)
    found = coefficients(reduction, batch, torch.tensor(keep)).expand(batch.n_tokens).tolist()
    expected = reference.coefficients(reduction.denominator.value, sequence, keep, reduction.constant)
    assert found == pytest.approx(expected, rel=1e-6)


@every_reduction
def test_runs_have_their_own_denominators(reduction: Reduction) -> None:
    runs = TokenBatch(
        logp_pi=torch.zeros(2, 4),
        logp_mu=torch.zeros(2, 4),
        entropy_mu=torch.zeros(2, 4),
        advantage=torch.zeros(2, 4),
        sequence=torch.tensor([[0, 0, 0, 1], [0, 1, 2, 3]]),
        group=torch.zeros(2, 4, dtype=torch.int64),
        weight_version=torch.zeros(2, 4, dtype=torch.int64),
        target_version=0,
    )
    keep = torch.tensor([[True, True, False, True], [True, False, False, False]])
    both = coefficients(reduction, runs, keep).expand(2, 4)
    for run in range(2):
        alone = coefficients(reduction, runs.runs(run), keep[run]).expand(4)
        torch.testing.assert_close(both[run], alone)


@pytest.mark.parametrize("reduction", [r for r in REDUCTIONS if r.constant is None], ids=lambda r: r.denominator.value)
def test_a_mean_of_ones_over_kept_and_dropped_tokens(reduction: Reduction) -> None:
    """What a reduction is a mean of shows on contributions of 1."""
    batch = from_ratios([0.0] * 6, sequence=[0, 0, 0, 0, 1, 1])
    keep = torch.tensor([True, True, True, False, True, True])
    total = (coefficients(reduction, batch, keep) * keep.float()).sum().item()
    expected = {
        Denominator.TOKEN_MEAN: 5 / 6,  # dropped tokens stay in the denominator
        Denominator.TOKEN_MEAN_KEPT: 1.0,
        Denominator.SEQ_MEAN_TOKEN_MEAN: (3 / 4 + 2 / 2) / 2,
        Denominator.SEQ_MEAN_TOKEN_SUM: (3 + 2) / 2,
    }[reduction.denominator]
    assert total == pytest.approx(expected)


@every_reduction
def test_counts_are_summed_over_processes(reduction: Reduction) -> None:
    """Two processes with the same part: every count doubles, so that their losses add up to a mean."""
    batch = from_ratios([0.0] * 3, sequence=[0, 0, 1])
    keep = torch.tensor([True, False, True])
    alone = coefficients(reduction, batch, keep).expand(3)
    joined = coefficients(reduction, batch, keep, lambda total: 2 * total).expand(3)
    factor = 1.0 if reduction.denominator is Denominator.CONSTANT else 0.5
    torch.testing.assert_close(joined, factor * alone)


def test_nothing_kept_gives_a_finite_denominator() -> None:
    batch = from_ratios([0.0, 0.0])
    none = torch.tensor([False, False])
    assert coefficients(Reduction(denominator=Denominator.TOKEN_MEAN_KEPT), batch, none).isfinite().all()


def test_the_constant_goes_with_its_denominator_only() -> None:
    with pytest.raises(ConfigError, match="constant goes with the denominator 'constant' and only there"):
        Reduction(denominator=Denominator.CONSTANT)
    with pytest.raises(ConfigError, match=r"got constant=3.0 with 'token-mean'"):
        Reduction(constant=3.0)
    with pytest.raises(RangeError, match=r"constant must lie in \[1e-30, 1e\+30\], got 0.0"):
        Reduction(denominator=Denominator.CONSTANT, constant=0.0)


@pytest.mark.parametrize("text", [kind.value for kind in Denominator if kind is not Denominator.CONSTANT])
def test_a_denominator_may_be_given_by_its_name(text: str) -> None:
    assert Reduction(denominator=text) == Reduction(denominator=Denominator(text))


def test_a_misspelt_denominator_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="'token-mean'"):
        Reduction(denominator="tokenmean")
