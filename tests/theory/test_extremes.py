"""Two-point extremes against ball arithmetic, dense grids and brute force over vertices."""

import itertools

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.theory import extremes as ex
from entr_lab.theory.dispersion import drift_range, entropy
from entr_lab.theory.divergence import second_moment, tilt, variance
from entr_lab.theory.envelope import inverse_binary_entropy
from tests.theory_strategies import positions


@given(st.floats(1e-300, 0.5), st.floats(1e-6, 700.0))
def test_two_point_kl_matches_ball_arithmetic(p, R):
    ctx.prec = 3000
    a, r = arb(p), arb(R)
    want = float(((1 - a + a * r.exp()).log() - a * r).mid())
    np.testing.assert_allclose(ex.two_point_kl(p, R), want, rtol=1e-12)


@pytest.mark.parametrize("R", [1e-6, 9e-4, 1.1e-3, 0.1, 1.0, 5.0, 50.0, 700.0])
def test_worst_group_is_the_maximum_of_a_grid(R):
    p = np.linspace(0, 1, 200_001)
    value = ex.two_point_kl(p, R)
    assert abs(p[np.argmax(value)] - ex.worst_group(R)) < 1e-4 + 1e-3 * (R < 1e-4)
    assert value.max() <= ex.two_point_kl(ex.worst_group(R), R) * (1 + 1e-12)
    assert value.max() <= ex.hoeffding_kl_bound(R)


@settings(max_examples=30)
@given(positions(sizes=(2, 3, 17, 257), radius=100.0))
def test_kl_and_moment_bounds_hold(position):
    logp, drift = position
    delta, kl = tilt(logp, drift)
    R, H, var = drift_range(drift), entropy(logp), variance(logp, drift)
    slack = 1 + 1e-9
    assert kl <= ex.hoeffding_kl_bound(R) * slack
    assert kl <= ex.bennett_kl_bound(R, var) * slack + 1e-300
    assert kl <= ex.kl_envelope(R, H) * slack + 1e-300
    moment = second_moment(logp, delta)
    assert moment <= ex.second_moment_envelope(R, H) * slack + 1e-300


@settings(max_examples=25)
@given(st.floats(1e-3, 100.0), st.floats(1e-6, 3.0))
def test_envelopes_are_dense_grid_maxima_and_sharpen_the_assembled_bound(R, H):
    p = np.linspace(0.0, inverse_binary_entropy(H), 4001)
    np.testing.assert_allclose(ex.kl_envelope(R, H), ex.two_point_kl(p, R).max(), rtol=1e-5)
    moment = R**2 * p * (1 - p) + ex.two_point_kl(p, R) ** 2
    got = ex.second_moment_envelope(R, H)
    np.testing.assert_allclose(got, moment.max(), rtol=1e-5)
    assert moment.max() <= got * (1 + 1e-12)
    assert got <= ex.assembled_moment_bound(R, H) * (1 + 1e-12)
    mirrored = R**2 * p * (1 - p) + ex.two_point_kl(1 - p, R) ** 2
    assert mirrored.max() <= got * (1 + 1e-9)


def test_vertices_are_the_worst_drifts():
    rng = np.random.default_rng(3)
    for _ in range(30):
        logp = np.log(rng.dirichlet(np.ones(4)))
        R = rng.uniform(0.5, 6)
        vertices = [R * np.array(v, float) for v in itertools.product((0, 1), repeat=4)]
        moments = [second_moment(logp, tilt(logp, v)[0]) for v in vertices]
        inside = R * rng.random((2000, 4))
        delta, kl = tilt(logp, inside)
        assert second_moment(logp, delta).max() <= max(moments) * (1 + 1e-12)
        assert kl.max() <= max(tilt(logp, v)[1] for v in vertices) * (1 + 1e-12)


def test_two_tokens_attain_both_envelopes():
    for q, R in ((0.01, 8.0), (0.2, 2.0), (0.45, 1.0)):
        H = entropy(np.log([q, 1 - q]))
        shares = np.linspace(1e-6, q, 2000)
        logp = np.log(np.stack([shares, 1 - shares], -1))
        delta, kl = tilt(logp, np.array([R, 0.0]))
        np.testing.assert_allclose(kl.max(), ex.kl_envelope(R, H), rtol=1e-5)
        np.testing.assert_allclose(second_moment(logp, delta).max(), ex.second_moment_envelope(R, H), rtol=1e-5)


@given(positions(radius=20.0))
def test_token_ratio_range(position):
    logp, drift = position
    delta, _ = tilt(logp, drift)
    R = drift_range(drift)
    low, high = ex.token_ratio_range(np.exp(logp), R)
    tol = 1e-15 * np.exp(R) + 1e-12  # 1 − q is known to 1e-16 only
    assert np.all(delta >= low - tol)
    assert np.all(delta <= high + tol)
    assert np.all((low >= -R - tol) & (high <= R + tol))


@pytest.mark.parametrize("q", [1e-12, 0.3, 0.999])
@pytest.mark.parametrize("R", [1e-3, 2.0, 200.0])
def test_token_ratio_range_is_attained(q, R):
    logp = np.log([q, 1 - q])
    low, high = ex.token_ratio_range(q, R)
    np.testing.assert_allclose(tilt(logp, [0.0, R])[0][0], low, rtol=1e-9)
    np.testing.assert_allclose(tilt(logp, [R, 0.0])[0][0], high, rtol=1e-9)
