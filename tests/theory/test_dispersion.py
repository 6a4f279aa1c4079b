"""Dispersion against Monte Carlo, exact small cases and the grouping identity."""

import numpy as np
import pytest
from hypothesis import given

from entr_lab.errors import ShapeError
from entr_lab.theory import dispersion as dp
from entr_lab.theory.divergence import normalise, variance
from tests.theory_strategies import log_distributions


@given(log_distributions())
def test_entropy_and_gini_match_plain_sums(logp):
    p = np.exp(logp)
    want = -sum(float(x) * float(lx) for x, lx in zip(p, logp, strict=True))
    np.testing.assert_allclose(dp.entropy(logp), want, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(dp.gini_simpson(logp), np.sum(p * (1 - p)), rtol=1e-9, atol=1e-12)


def test_gini_keeps_its_digits_at_a_one_hot_limit():
    q = 1e-30
    np.testing.assert_allclose(dp.gini_simpson(np.log([q, 1.0])), 2 * q, rtol=1e-12)


@given(log_distributions())
def test_gini_bound(logp):
    assert dp.gini_simpson(logp) <= dp.gini_bound(dp.entropy(logp)) * (1 + 1e-9) + 1e-300


def test_gini_bound_is_attained_by_a_fair_coin_only_loosely_otherwise():
    ratio = [
        dp.gini_simpson(lp) / dp.gini_bound(dp.entropy(lp)) for lp in (np.log([0.5, 0.5]), np.log([1e-9, 1 - 1e-9]))
    ]
    assert ratio[0] == pytest.approx(1.0, rel=1e-14)
    assert ratio[1] < 0.2


def test_iid_noise_has_gini_dispersion_by_monte_carlo():
    rng = np.random.default_rng(0)
    logp = normalise(rng.standard_normal(6) * 2)
    sample = variance(logp, 0.7 * rng.standard_normal((200_000, 6)))
    error = 4 * sample.std() / np.sqrt(len(sample))
    assert abs(sample.mean() - dp.noise_dispersion(logp, 0.7)) < error


def test_expected_dispersion_generalises_it_and_refuses_a_wrong_shape():
    rng = np.random.default_rng(1)
    logp = normalise(rng.standard_normal((3, 5)))
    np.testing.assert_allclose(
        dp.expected_dispersion(logp, 4.0 * np.eye(5)), dp.noise_dispersion(logp, 2.0), rtol=1e-12
    )
    shifted = 4.0 * np.eye(5) + 3.0  # a common shift of all logits is invisible
    np.testing.assert_allclose(dp.expected_dispersion(logp, shifted), dp.noise_dispersion(logp, 2.0), rtol=1e-12)
    with pytest.raises(ShapeError, match=r"\[5, 5\]"):
        dp.expected_dispersion(logp, np.eye(4))


def test_shared_feature_drift_is_not_gini():
    """Independent steps are not enough for σ²G: correlated components give another constant."""
    rng = np.random.default_rng(2)
    W = rng.standard_normal((5, 2))
    logp = normalise(rng.standard_normal(5))
    sample = variance(logp, rng.standard_normal((200_000, 2)) @ W.T)
    want = dp.expected_dispersion(logp, W @ W.T)
    assert abs(sample.mean() - want) < 4 * sample.std() / np.sqrt(len(sample))
    average_sigma = np.sqrt(np.trace(W @ W.T) / 5)
    assert abs(want / dp.noise_dispersion(logp, average_sigma) - 1) > 0.05


def test_range_is_subadditive_with_equality_for_aligned_steps():
    rng = np.random.default_rng(3)
    steps = rng.standard_normal((50, 4, 7))
    total, worst = dp.range_after_lag(steps)
    assert np.all(total <= worst)
    total, worst = dp.range_after_lag(np.repeat(steps[:, :1], 4, axis=1))
    np.testing.assert_allclose(total, worst)


def test_lag_dispersion_is_linear_for_a_random_walk_and_quadratic_when_aligned():
    rng = np.random.default_rng(4)
    logp = normalise(rng.standard_normal(6))
    whole, parts = dp.lag_dispersion(logp, rng.standard_normal((40_000, 5, 6)))
    gap = whole - parts
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
    whole, parts = dp.lag_dispersion(logp, np.repeat(rng.standard_normal((10, 1, 6)), 5, axis=1))
    np.testing.assert_allclose(whole, 5 * parts)
