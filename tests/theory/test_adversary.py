"""The search bites: false variants of true statements are caught, true ones are not, and equality is reached."""

import numpy as np
import pytest

from entr_lab.theory import divergence as dv
from entr_lab.theory.adversary import decode, large_positions, search, starting_points
from entr_lab.theory.dispersion import drift_range, entropy, gini_simpson
from entr_lab.theory.envelope import dispersion_bound
from entr_lab.theory.masking import EPS, WEIGHTS, enumerate_tokens, estimator_moments
from entr_lab.theory.scalars import phi


def half_moment(p):
    """False: KL ≤ ½ E δ² (A2 without φ)."""
    delta, kl = dv.tilt(p.logp_mu, p.drift)
    return kl / (0.5 * dv.second_moment(p.logp_mu, delta) + 1e-290)


def budget_bounds_kl(p):
    """False: ENTR's budget bounds the *full* KL (A3 without the word accepted)."""
    delta, kl = dv.tilt(p.logp_mu, p.drift)
    b = np.sqrt(entropy(p.logp_mu) + EPS)
    share = np.sum(np.where(np.abs(delta) <= b[:, None], np.exp(p.logp_mu), 0.0), axis=-1)
    return kl / (phi(b) * b**2 * share + 1e-290)


def moment_without_kl(p):
    """False: E δ² ≤ R² v(H), the bound of the variance without the squared KL."""
    delta, _ = dv.tilt(p.logp_mu, p.drift)
    return dv.second_moment(p.logp_mu, delta) / (dispersion_bound(drift_range(p.drift), entropy(p.logp_mu)) + 1e-290)


def gini_is_half_the_entropy(p):
    """False: G ≤ H/2."""
    return gini_simpson(p.logp_mu) / (0.5 * entropy(p.logp_mu) + 1e-290)


def uncapped_survives_a_bad_record(p):
    """False: the outward rule without the cap keeps E_μ[w²] ≤ e^{2b} under recording error."""
    delta, _ = dv.tilt(p.logp_mu, p.drift)
    record = p.logp_mu + np.clip(10.0 * p.aux, -250.0, 250.0)
    t = enumerate_tokens(p.logp_mu, p.logp_mu + delta, -np.ones_like(delta), record)
    second = estimator_moments(t, WEIGHTS["entr-outward-uncapped"].weight(t, 1.0)).weight_sq
    return second / np.exp(2 * np.sqrt(t.entropy[:, 0] + EPS))


@pytest.mark.parametrize(
    "false",
    [half_moment, budget_bounds_kl, moment_without_kl, gini_is_half_the_entropy, uncapped_survives_a_bad_record],
)
def test_a_false_variant_is_caught(false):
    worst = search(false, rounds=60)
    assert worst.ratio > 1.01, false.__doc__
    assert false(worst.instance)[0] == pytest.approx(worst.ratio)  # the instance reproduces its ratio


def test_a_slightly_false_constant_is_caught_only_by_climbing():
    """TV ≤ 0.99995 √(KL/2) is violated only by nearly fair coins at nearly no drift."""

    def nearly(p):
        delta, kl = dv.tilt(p.logp_mu, np.clip(p.drift, 0.01, 20.0))
        tv = dv.total_variation(p.logp_mu, p.logp_mu + delta)
        return np.where(tv > 1e-4, tv / (0.99995 * np.sqrt(kl / 2)), 0.0)

    assert search(nearly, rounds=200).ratio > 1.0


def test_climbing_improves_on_the_starting_points():
    """A narrow peak away from every structured start."""
    target = np.array([0.31, 0.27, 0.22, 0.12, 0.08])

    def peak(p):
        return np.exp(-30.0 * np.sum((np.exp(p.logp_mu) - target) ** 2, axis=-1) - 0.01 * np.sum(p.drift**2, axis=-1))

    start = peak(decode(starting_points(np.random.default_rng(0), 0), 0)).max()
    assert start < 0.9
    assert search(peak, rounds=200).ratio > 0.995


def test_same_seed_same_answer_and_nan_is_ignored():
    def ratio(p):
        return np.where(p.logp_mu[:, 0] > -1.0, np.nan, -entropy(p.logp_mu))

    a, b = search(ratio, seed=3, rounds=30), search(ratio, seed=3, rounds=30)
    assert a.ratio == b.ratio
    np.testing.assert_array_equal(a.instance.logp_mu, b.instance.logp_mu)
    assert np.isfinite(a.ratio)
    assert a.tried == b.tried > 1000


def test_a_deadline_in_the_past_still_tries_the_structured_extremes():
    worst = search(lambda p: entropy(p.logp_mu), rounds=50, deadline=0.0)
    assert worst.tried >= 128
    assert worst.ratio == pytest.approx(np.log(5))


def test_instances_are_distributions_and_scalars_stay_inside():
    rng = np.random.default_rng(0)
    p = decode(1000 * rng.standard_normal((50, 17)), 2)
    np.testing.assert_allclose(np.exp(p.logp_mu).sum(axis=1), 1.0)
    assert p.scalars.shape == (50, 2)
    assert np.all((p.scalars >= 0) & (p.scalars <= 1))
    big = large_positions(rng, 65_536, 1)
    np.testing.assert_allclose(np.exp(big.logp_mu).sum(axis=1), 1.0)
    assert big.drift.shape == big.aux.shape == (5, 65_536)
