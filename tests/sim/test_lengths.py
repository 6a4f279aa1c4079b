"""Length laws against their analytic moments and quantiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from entr_lab.errors import ConfigError, RangeError
from entr_lab.sim.lengths import Empirical, Fixed, LogNormal, ParetoTail, Workload, wait_times

SCORE = np.linspace(-3, 3, 41)


def test_log_normal_quantiles_are_scipys() -> None:
    mean, cv = 2000.0, 1.3
    sigma = math.sqrt(math.log(1 + cv**2))
    law = stats.lognorm(s=sigma, scale=mean * math.exp(-(sigma**2) / 2))
    assert law.mean() == pytest.approx(mean)
    assert law.std() / law.mean() == pytest.approx(cv)
    np.testing.assert_allclose(LogNormal(mean, cv).quantile(SCORE), law.ppf(stats.norm.cdf(SCORE)), rtol=1e-9)


def test_pareto_quantiles_are_scipys() -> None:
    law = stats.pareto(b=2.5, scale=900.0)
    assert law.mean() == pytest.approx(1500.0)
    np.testing.assert_allclose(ParetoTail(1500.0, 2.5).quantile(SCORE), law.ppf(stats.norm.cdf(SCORE)), rtol=1e-9)


def test_an_empirical_law_returns_its_values_in_their_proportions() -> None:
    workload = Workload(Empirical((30.0, 10.0, 10.0, 20.0)), cap=100)
    drawn = workload.lengths_of(np.random.default_rng(0), 2000, 4).ravel()
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [10, 20, 30]
    np.testing.assert_allclose(counts / drawn.size, [0.5, 0.25, 0.25], atol=0.02)


def test_lengths_are_whole_capped_and_their_mean_is_the_quadratures() -> None:
    workload = Workload(LogNormal(1000.0, 1.0), cap=2500)
    drawn = workload.lengths_of(np.random.default_rng(1), 4000, 8)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert drawn.max() == 2500
    error = 4 * drawn.std() / math.sqrt(drawn.size)
    mean, square = workload.moments()
    assert abs(drawn.mean() - mean) < error
    assert mean < 950  # the cap bites
    assert square == pytest.approx((drawn.astype(float) ** 2).mean(), rel=0.05)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_lengths_correlate_within_a_group_as_asked(rho: float) -> None:
    workload = Workload(LogNormal(1000.0, 1.0), cap=10**9, group_correlation=rho)
    score = np.log(workload.lengths_of(np.random.default_rng(2), 20_000, 2))
    assert np.corrcoef(score.T)[0, 1] == pytest.approx(rho, abs=0.02)


def test_turns_have_the_mean_asked_and_stay_in_range() -> None:
    workload = Workload(Fixed(10.0), cap=10, turns=3.0, max_turns=50)
    turns = workload.turns_of(np.random.default_rng(3), 5000, 4)
    assert turns.min() == 1
    assert turns.max() <= 50
    assert turns.mean() == pytest.approx(3.0, abs=0.1)
    assert Workload(Fixed(10.0), cap=10).turns_of(np.random.default_rng(3), 2, 2).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("mean", "most"), [(1.0, 4), (1.5, 2), (3.0, 6), (14.3, 40), (4.999, 5), (5.0, 5), (4.0, 10_000)]
)
def test_the_mean_number_of_turns_is_the_one_asked_for_under_the_maximum_too(mean: float, most: int) -> None:
    turns = Workload(Fixed(10.0), cap=10, turns=mean, max_turns=most).turns_of(np.random.default_rng(5), 20_000, 4)
    assert turns.min() >= 1
    assert turns.max() <= most
    assert turns.mean() == pytest.approx(mean, abs=4.0 * turns.std() / math.sqrt(turns.size) + 1e-12)
    if mean == most:
        assert np.all(turns == most)


def test_waits_have_the_mean_and_variation_asked() -> None:
    waits = wait_times(np.random.default_rng(4), 2.0, 0.5, 200_000)
    assert waits.mean() == pytest.approx(2.0, rel=0.01)
    assert waits.std() / waits.mean() == pytest.approx(0.5, rel=0.02)
    assert not wait_times(np.random.default_rng(4), 0.0, 0.5, 3).any()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Fixed(0.0),
        lambda: LogNormal(-3.0, 1.0),
        lambda: LogNormal(3.0, math.nan),
        lambda: ParetoTail(10.0, 1.0),
        lambda: Workload(Fixed(5.0), cap=0),
        lambda: Workload(Fixed(5.0), cap=5, group_correlation=1.0),
        lambda: Workload(Fixed(5.0), cap=5, turns=4.0, max_turns=3),
    ],
)
def test_impossible_laws_are_refused(build) -> None:
    with pytest.raises(RangeError):
        build()


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one length"):
        Empirical(())
