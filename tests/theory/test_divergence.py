"""Divergences against naive sums in ball arithmetic, and A1–A4, A6 as properties over adversarial positions."""

import math

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import assume, given

from entr_lab.errors import RangeError
from entr_lab.theory import divergence as dv
from entr_lab.theory.scalars import g
from tests.theory_strategies import log_distributions, positions


def exact_position(logp, drift, bits=300):
    """Exact μ, π, δ as balls, from the float inputs read as exact numbers; μ is renormalised exactly."""
    ctx.prec = bits
    lm = [arb(float(v)) for v in logp]
    shift = sum((v.exp() for v in lm), arb(0)).log()
    lm = [v - shift for v in lm]
    lz = sum(((v + arb(float(d))).exp() for v, d in zip(lm, drift, strict=True)), arb(0)).log()
    delta = [arb(float(d)) - lz for d in drift]
    return [v.exp() for v in lm], delta


@given(positions(sizes=(2, 3, 17)))
def test_tilt_matches_ball_arithmetic(position):
    logp, drift = position
    mu, delta = exact_position(logp, drift)
    kl = float((-sum((m * d for m, d in zip(mu, delta, strict=True)), arb(0))).mid())
    got_delta, got_kl = dv.tilt(logp, drift)
    scale = max(1.0, float(np.ptp(drift)))
    np.testing.assert_allclose(got_kl, kl, rtol=1e-9, atol=1e-60)
    np.testing.assert_allclose(got_delta, [float(d.mid()) for d in delta], atol=1e-13 * scale, rtol=1e-12)


@given(positions())
def test_kl_is_the_mean_of_k3_and_of_minus_k1(position):
    logp, drift = position
    delta, kl = dv.tilt(logp, drift)
    logp_pi = logp + delta
    direct = -np.sum(np.exp(logp) * delta)
    np.testing.assert_allclose(dv.kl_mu_pi(logp, logp_pi), kl, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(direct, kl, rtol=1e-9, atol=1e-12)
    assert np.all(g(delta) >= 0)


def test_escaped_mass_belongs_to_the_divergence():
    """A top-k behaviour: k3 alone misses π(μ = 0)."""
    mu, pi = np.array([0.6, 0.4, 0.0]), np.array([0.5, 0.3, 0.2])
    with np.errstate(divide="ignore"):
        lm, lp = np.log(mu), np.log(pi)
    parts = dv.kl_parts(lm, lp)
    want = 0.6 * math.log(0.6 / 0.5) + 0.4 * math.log(0.4 / 0.3)
    k3 = 0.6 * (0.5 / 0.6 - 1 - math.log(0.5 / 0.6)) + 0.4 * (0.3 / 0.4 - 1 - math.log(0.3 / 0.4))
    assert parts.escaped == pytest.approx(0.2)
    assert dv.kl_mu_pi(lm, lp) == pytest.approx(want, rel=1e-13)
    assert k3 == pytest.approx(want - 0.2, rel=1e-13)
    assert dv.renyi2(lm, lp) == np.inf
    assert dv.ess_fraction(lm, lp) == 0.0
    assert dv.kl_pi_mu(lm, lp) == np.inf


@given(positions(radius=300.0))
def test_bracket_holds_on_the_support_and_on_any_part_of_it(position):
    logp, drift = position
    delta, kl = dv.tilt(logp, drift)
    for radius in (np.max(np.abs(delta)), np.median(np.abs(delta)) + 1e-9):
        accepted = np.abs(delta) <= radius
        low, high = dv.bracket(radius, dv.second_moment(logp, delta, accepted))
        part = dv.kl_parts(logp, logp + delta, accepted).accepted
        assert low * (1 - 1e-9) - 1e-13 <= part <= high * (1 + 1e-9) + 1e-13
    assert kl >= dv.kl_parts(logp, logp + delta, accepted).accepted * (1 - 1e-9) - 1e-13


def test_bracket_is_attained_by_a_vanishing_mass_at_the_radius():
    for M in (0.1, 1.0, 5.0):
        for sign, end in ((1.0, 1), (-1.0, 0)):
            p = 1e-9
            rest = math.log1p(-p * math.exp(sign * M)) - math.log1p(-p)
            logp, delta = np.log([p, 1 - p]), np.array([sign * M, rest])
            kl = dv.kl_mu_pi(logp, logp + delta)
            assert dv.bracket(M, dv.second_moment(logp, delta))[end] == pytest.approx(kl, rel=1e-6)


def test_parts_add_up_and_the_rejected_part_is_reported():
    rng = np.random.default_rng(0)
    logp = dv.normalise(rng.standard_normal((5, 9)))
    delta, kl = dv.tilt(logp, 3 * rng.standard_normal((5, 9)))
    parts = dv.kl_parts(logp, logp + delta, np.abs(delta) < 0.7)
    np.testing.assert_allclose(parts.accepted + parts.rejected, kl, rtol=1e-12)
    assert np.all(parts.rejected > 0)


@given(positions())
def test_second_moment_is_dispersion_plus_squared_kl(position):
    logp, drift = position
    delta, kl = dv.tilt(logp, drift)
    np.testing.assert_allclose(dv.second_moment(logp, delta), dv.variance(logp, drift) + kl**2, rtol=1e-8, atol=1e-14)


@given(positions(sizes=(2, 3, 17, 257), radius=300.0))
def test_two_sided_inequalities(position):
    logp, drift = position
    delta, kl = dv.tilt(logp, drift)
    pi = logp + delta
    tv, reverse = dv.total_variation(logp, pi), dv.kl_pi_mu(logp, pi)
    assert tv <= math.sqrt(min(kl, reverse) / 2) * (1 + 1e-9) + 1e-15
    assert tv <= math.sqrt(-math.expm1(-min(kl, reverse))) * (1 + 1e-9) + 1e-15
    assert tv <= 0.5 * math.sqrt(dv.chi_square(logp, pi)) * (1 + 1e-9) + 1e-15
    assert reverse <= dv.renyi2(logp, pi) * (1 + 1e-9) + 1e-14


def test_naive_twins_on_ordinary_numbers():
    rng = np.random.default_rng(1)
    for _ in range(20):
        mu, pi = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
        lm, lp = np.log(mu), np.log(pi)
        assert dv.kl_mu_pi(lm, lp) == pytest.approx(sum(m * math.log(m / p) for m, p in zip(mu, pi, strict=True)))
        assert dv.kl_pi_mu(lm, lp) == pytest.approx(sum(p * math.log(p / m) for m, p in zip(mu, pi, strict=True)))
        chi = sum(p * p / m for m, p in zip(mu, pi, strict=True)) - 1
        assert dv.chi_square(lm, lp) == pytest.approx(chi)
        assert dv.ess_fraction(lm, lp) == pytest.approx(1 / (1 + chi))
        assert dv.total_variation(lm, lp) == pytest.approx(sum(abs(m - p) for m, p in zip(mu, pi, strict=True)) / 2)


@given(log_distributions())
def test_no_drift_is_exactly_nothing(logp):
    delta, kl = dv.tilt(logp, np.zeros(len(logp)))
    assert kl == 0.0
    assert np.all(np.abs(delta) == 0.0)


@given(positions(radius=1e-3))
def test_chi_square_of_small_drift_keeps_its_digits(position):
    logp, drift = position
    assume(np.exp(logp).min() > 1e-12)
    delta, _ = dv.tilt(logp, drift)
    want = np.sum(np.exp(logp) * np.expm1(delta) ** 2)
    np.testing.assert_allclose(dv.chi_square(logp, logp + delta), want, rtol=1e-6, atol=1e-18)


def test_negative_radius_is_refused():
    with pytest.raises(RangeError, match="radius"):
        dv.bracket(-1.0, 1.0)
