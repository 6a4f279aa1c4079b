"""Measured laws: slopes, intervals, and what a wrong drift would give."""

import numpy as np
import pytest

from entr_lab.theory import laws
from entr_lab.theory.dispersion import entropy


def test_fit_slope_recovers_a_power():
    x = np.geomspace(0.1, 10, 7)
    assert laws.fit_slope(x, 3.0 * x**1.7) == pytest.approx(1.7)


def test_cubic_slope_and_the_symmetric_exception():
    slope, half, fair = laws.cubic_slope(seed=2)
    assert abs(slope - 3.0) < 0.05
    assert half < 0.05
    assert fair == pytest.approx(4.0, abs=0.01)


def test_scaling_law_is_for_the_rms():
    law = laws.scaling_law(seed=1, vocabulary=128, positions=400)
    assert 0.4 < law.rms < 0.65
    assert 0.9 < law.mean_abs < 1.3
    assert law.rms_half < 0.05
    assert law.mean_abs_half < 0.1


def test_lag_exponents():
    walk, ballistic = laws.lag_exponent("walk", seed=3), laws.lag_exponent("ballistic", seed=3)
    assert abs(walk[0] - 0.5) < 0.06
    assert abs(ballistic[0] - 1.0) < 0.02
    assert ballistic[1] < walk[1] < 0.06


def test_positions_look_like_a_language_model():
    logp = laws.llm_like_positions(np.random.default_rng(0), 4000, 256)
    H = entropy(logp)
    np.testing.assert_allclose(np.exp(logp).sum(axis=1), 1.0)
    assert 0.3 < np.mean(H < 0.1) < 0.8
    assert np.quantile(H, 0.95) > 1.0
