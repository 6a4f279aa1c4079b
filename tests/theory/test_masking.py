"""Moments against a loop over tokens that builds every gradient vector, and Monte Carlo; E1, E2, G2, G3."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import ShapeError
from entr_lab.theory.divergence import chi_square, normalise, tilt
from entr_lab.theory.masking import EPS, WEIGHTS, enumerate_tokens, estimator_moments, is_outward, mean_squared_error
from tests.theory_strategies import positions


def random_tokens(seed, B=6, V=5, drift=1.5, record=0.0):
    rng = np.random.default_rng(seed)
    logp_mu = normalise(2 * rng.standard_normal((B, V)))
    delta, _ = tilt(logp_mu, drift * rng.standard_normal((B, V)))
    rec = logp_mu + record * rng.standard_normal((B, V))
    return enumerate_tokens(logp_mu, logp_mu + delta, rng.standard_normal((B, V)), rec)


def naive_weight(name, t, mu, rec, pi, A, H, G):
    """The rule for one token, in plain floats and probability space."""
    r, d = pi / rec, math.log(pi / rec)
    q = H  # h_b⁻¹ by bisection, for the envelope
    if name == "entr-envelope":
        low, high = 0.0, 0.5
        for _ in range(200):
            mid = (low + high) / 2
            low, high = (mid, high) if -mid * math.log(mid) - (1 - mid) * math.log(1 - mid) < H else (low, mid)
        q = 4 * math.log(2) * low * (1 - low)

    def kl(p, s):
        p, s = min(max(p, 1e-6), 1 - 1e-6), min(max(s, 1e-6), 1 - 1e-6)
        return p * math.log(p / s) + (1 - p) * math.log((1 - p) / (1 - s))

    b = math.sqrt(t * (H + 0.01))
    inside = abs(d) <= b
    table = {
        "keep-all": r,
        "fixed": r if abs(d) <= t else 0.0,
        "icepop": r if 0.5**t <= r <= 5.0**t else 0.0,
        "kpop": r if max(kl(pi, rec), kl(rec, pi)) <= t else 0.0,
        "entr": r if inside else 0.0,
        "entr-gini": r if d * d <= t * (G + 0.01) else 0.0,
        "entr-envelope": r if d * d <= t * (q + 0.01) else 0.0,
        "entr-outward": min(r, math.exp(b)) if inside or A * d <= 0 else 0.0,
        "entr-outward-uncapped": r if inside or A * d <= 0 else 0.0,
        "entr-inward-dropped": r if inside or A * d > 0 else 0.0,
        "entr-truncated": min(r, math.exp(b)),
        "truncated": min(r, t),
    }
    return table[name]


@pytest.mark.parametrize("name", list(WEIGHTS))
@pytest.mark.parametrize("record", [0.0, 0.7])
def test_weights_and_moments_match_a_loop_over_tokens(name, record):
    tokens = random_tokens(7, record=record)
    threshold = WEIGHTS[name].default
    weight = WEIGHTS[name].weight(tokens, threshold)
    got = estimator_moments(tokens, weight)
    for b in range(len(tokens.mu)):
        mu, pi, A = tokens.mu[b], tokens.pi[b], tokens.advantage[b]
        rec = np.exp(tokens.logp_rec[b])
        H = -sum(m * math.log(m) for m in mu)
        G = sum(m * (1 - m) for m in mu)
        w = [naive_weight(name, threshold, mu[y], rec[y], pi[y], A[y], H, G) for y in range(5)]
        np.testing.assert_allclose(weight[b], w, rtol=1e-10)
        f = [np.eye(5)[y] - pi for y in range(5)]
        mean = sum(mu[y] * w[y] * A[y] * f[y] for y in range(5))
        goal = sum(pi[y] * A[y] * f[y] for y in range(5))
        spread = sum(mu[y] * np.sum((w[y] * A[y] * f[y] - mean) ** 2) for y in range(5))
        assert got.bias_sq[b] == pytest.approx(np.sum((mean - goal) ** 2), rel=1e-9, abs=1e-14)
        assert got.variance[b] == pytest.approx(spread, rel=1e-9, abs=1e-13)
        assert got.weight_sq[b] == pytest.approx(sum(mu[y] * w[y] ** 2 for y in range(5)), rel=1e-10)


def test_mean_squared_error_by_monte_carlo():
    tokens = random_tokens(11, B=1)
    w = WEIGHTS["entr"].weight(tokens, 1.0)
    rng = np.random.default_rng(0)
    y = rng.choice(5, p=tokens.mu[0] / tokens.mu[0].sum(), size=(40_000, 8))
    f = (np.eye(5) - tokens.pi[0])[y]
    estimate = np.mean((w[0] * tokens.advantage[0])[y][..., None] * f, axis=1)
    goal = (tokens.pi[0] * tokens.advantage[0]) @ (np.eye(5) - tokens.pi[0])
    errors = np.sum((estimate - goal) ** 2, axis=-1)
    want = mean_squared_error(estimator_moments(tokens, w), 8)[0]
    assert abs(errors.mean() - want) < 4 * errors.std() / math.sqrt(len(errors))


def one(position, seed):
    logp, drift = position
    delta, _ = tilt(logp, drift)
    A = np.random.default_rng(seed).standard_normal(len(logp))
    return enumerate_tokens(logp[None], (logp + delta)[None], A[None])


@given(positions(sizes=(2, 3, 17)), st.integers(0, 99))
def test_bias_certificates(position, seed):
    """E1 for the symmetric mask, G2 for outward + cap, and G2 ≤ E1."""
    t = one(position, seed)
    f = t.advantage[0][:, None] * (np.eye(t.mu.shape[1]) - t.pi[0])
    largest = np.max(np.linalg.norm(f, axis=1))
    b = math.sqrt(1.0 * (t.entropy[0, 0] + EPS))
    out, outward = np.abs(t.delta[0]) > b, is_outward(t.delta[0], t.advantage[0])
    shrink = np.where(out & ~outward & (t.delta[0] > b), -np.expm1(b - t.delta[0]), 0.0)
    certificate = largest * np.sum(t.pi[0] * (out & outward) + t.pi[0] * shrink)
    symmetric = largest * np.sum(t.pi[0] * out)
    for name, bound in (("entr", symmetric), ("entr-outward", certificate)):
        bias = math.sqrt(estimator_moments(t, WEIGHTS[name].weight(t, 1.0)).bias_sq[0])
        assert bias <= bound * (1 + 1e-9) + 1e-7 * largest
    assert certificate <= symmetric
    if np.sum(t.pi[0] * (out & ~outward)) > 1e-12:
        assert certificate < symmetric


@given(positions(sizes=(2, 3, 17)), st.integers(0, 99))
def test_variance_certificates(position, seed):
    """E2 and G3: E_μ[w²] ≤ e^b with an exact record, for a mask and for the cap."""
    t = one(position, seed)
    b = math.sqrt(t.entropy[0, 0] + EPS)
    for name in ("entr", "entr-outward", "entr-truncated"):
        weight_sq = estimator_moments(t, WEIGHTS[name].weight(t, 1.0)).weight_sq[0]
        assert weight_sq <= math.exp(b) * (1 + 1e-9)
    plain = estimator_moments(t, WEIGHTS["keep-all"].weight(t, 1.0)).weight_sq[0]
    np.testing.assert_allclose(plain, 1 + chi_square(np.log(t.mu), t.logp_pi)[0], rtol=1e-8)


@given(positions(sizes=(2, 17)), st.integers(0, 99), st.floats(1, 250))
@settings(max_examples=50)
def test_cap_survives_any_record_and_its_absence_does_not(position, seed, error):
    logp, drift = position
    delta, _ = tilt(logp, drift)
    rec = logp - error
    A = -np.abs(np.random.default_rng(seed).standard_normal(len(logp)))  # inward wherever δ > 0
    t = enumerate_tokens(logp[None], (logp + delta)[None], A[None], rec[None])
    b = math.sqrt(t.entropy[0, 0] + EPS)
    capped = estimator_moments(t, WEIGHTS["entr-outward"].weight(t, 1.0)).weight_sq[0]
    assert capped <= math.exp(2 * b) * (1 + 1e-9)
    if error > b + np.ptp(drift):
        free = estimator_moments(t, WEIGHTS["entr-outward-uncapped"].weight(t, 1.0)).weight_sq[0]
        assert free > math.exp(2 * b)


def test_kpop_has_no_variance_bound():
    """A rare token that KPop keeps at any ratio: E_π[m r] grows without limit."""
    second = []
    for q in (1e-8, 1e-16, 1e-32):
        p = 0.05 / math.log(1 / q)
        t = enumerate_tokens(np.log([[q, 1 - q]]), np.log([[p, 1 - p]]), np.ones((1, 2)))
        second.append(estimator_moments(t, WEIGHTS["kpop"].weight(t, 0.1)).weight_sq[0])
    assert second[2] > second[1] > second[0] > 1e2


def test_zero_advantage_is_never_outward():
    assert not np.any(is_outward([-3.0, 0.0, 3.0], 0.0))
    np.testing.assert_array_equal(is_outward([-3.0, 0.0, 3.0], [-1.0, 1.0, -1.0]), [True, False, False])


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match="four"):
        enumerate_tokens(np.zeros(3), np.zeros(3), np.zeros(3))
