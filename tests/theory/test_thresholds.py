"""Sweeps, regret and rank correlation against direct evaluation."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from entr_lab.errors import DataError, UnknownNameError
from entr_lab.theory.divergence import normalise, tilt
from entr_lab.theory.masking import WEIGHTS, enumerate_tokens, estimator_moments, mean_squared_error
from entr_lab.theory.thresholds import all_moments, rank_correlation, regret, sweep


@pytest.fixture(scope="module")
def tokens():
    rng = np.random.default_rng(5)
    logp = normalise(2 * rng.standard_normal((600, 12)))
    delta, _ = tilt(logp, rng.standard_normal((600, 12)))
    return enumerate_tokens(logp, logp + delta, rng.choice([-1.0, 1.0], (600, 12)))


def test_chunks_change_nothing(tokens):
    got = all_moments(tokens)
    assert list(got) == list(WEIGHTS)
    for name, moments in got.items():
        whole = estimator_moments(tokens, WEIGHTS[name].weight(tokens, WEIGHTS[name].default))
        for a, b in zip(moments, whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_sweep_is_the_error_at_each_threshold(tokens):
    grid = [0.1, 1.0, 4.0]
    got = sweep(tokens, "entr", grid, 64)
    want = [mean_squared_error(estimator_moments(tokens, WEIGHTS["entr"].weight(tokens, t)), 64).mean() for t in grid]
    np.testing.assert_allclose(got.error, want, rtol=1e-12)


@pytest.mark.parametrize("rule", ["entr", "fixed", "kpop", "truncated"])
def test_regret_is_non_negative_and_zero_at_its_own_oracle(tokens, rule):
    grid = list(np.geomspace(0.05, 20, 9))
    found = regret(tokens, rule, grid, 64)
    assert found.regret >= 0
    assert found.oracle_error == min(sweep(tokens, rule, [*grid, WEIGHTS[rule].default], 64).error)
    assert found.regret == pytest.approx(found.default_error - found.oracle_error)


def test_limits_of_a_sweep(tokens):
    """An infinite threshold is keep-all; a tiny one keeps nothing, whose error is the squared goal."""
    free = sweep(tokens, "fixed", [1e9], 64).error[0]
    assert free == pytest.approx(sweep(tokens, "keep-all", [1.0], 64).error[0], rel=1e-12)
    nothing = estimator_moments(tokens, np.zeros_like(tokens.mu))
    assert sweep(tokens, "fixed", [0.0], 64).error[0] == pytest.approx(nothing.bias_sq.mean(), rel=1e-6)


def test_unknown_rule_names_the_nearest(tokens):
    with pytest.raises(UnknownNameError, match="entr"):
        sweep(tokens, "entrr", [1.0], 8)


def test_rank_correlation_is_spearman():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(9), rng.standard_normal(9)
    rho, p = rank_correlation(x, y)
    want = spearmanr(x, y)
    assert rho == pytest.approx(want.statistic)
    assert abs(p - want.pvalue) < 0.06
    assert rank_correlation(x, -x)[0] == pytest.approx(-1.0)
    assert rank_correlation(x, -x)[1] < 0.01


def test_rank_correlation_refuses_too_little():
    with pytest.raises(DataError, match="four"):
        rank_correlation([1, 2], [2, 1])
    with pytest.raises(DataError, match="constant"):
        rank_correlation([1, 1, 1, 1], [1, 2, 3, 4])
