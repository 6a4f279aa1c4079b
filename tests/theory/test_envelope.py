"""The envelope against ball arithmetic, bisection and brute force over subsets."""

import itertools

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.theory import envelope as ev
from entr_lab.theory.dispersion import drift_range, entropy
from entr_lab.theory.divergence import variance
from entr_lab.theory.scalars import binary_entropy
from tests.theory_strategies import log_distributions, positions

ENTROPIES = [1e-300, 1e-100, 1e-12, 1e-3, 0.1, 0.3, 0.4999, 0.5, 0.5001, 0.65, 0.69, 0.6931471]


def bisect(H, bits=1200):
    """h_b⁻¹(H) by plain bisection on balls."""
    old, ctx.prec = ctx.prec, bits
    try:
        low, high = arb(0), arb(1) / 2
        for _ in range(1100):
            mid = ((low + high) / 2).mid()
            if -mid * mid.log() - (1 - mid) * (1 - mid).log() < arb(H):
                low = mid
            else:
                high = mid
        return float(low), float((low * (1 - low)).mid())
    finally:
        ctx.prec = old


@pytest.mark.parametrize("H", ENTROPIES)
def test_inverse_and_envelope_match_bisection(H):
    q, v = bisect(H)
    np.testing.assert_allclose(ev.inverse_binary_entropy(H), q, rtol=1e-14 if H < 0.69 else 1e-9)
    np.testing.assert_allclose(ev.variance_envelope(H), v, rtol=1e-14)


def test_ends_and_plateau():
    H = np.array([0.0, ev.LN2, np.nextafter(ev.LN2, 1), 5.0])
    np.testing.assert_array_equal(ev.variance_envelope(H), [0.0, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(ev.inverse_binary_entropy(H), [0.0, 0.5, 0.5, 0.5])
    np.testing.assert_array_equal(ev.envelope_slope(H[:2]), [0.0, 0.5])


@given(st.floats(1e-290, 0.693))
def test_round_trip(H):
    np.testing.assert_allclose(binary_entropy(ev.inverse_binary_entropy(H)), H, rtol=1e-14)


@given(st.floats(1e-6, 0.692))
def test_slope_is_the_derivative(H):
    h = 1e-4 * min(H, 0.6931471 - H)
    secant = (ev.variance_envelope(H + h) - ev.variance_envelope(H - h)) / (2 * h)
    np.testing.assert_allclose(ev.envelope_slope(H), secant, rtol=1e-5)


@given(st.just(0.0) | st.floats(1e-300, 0.693), st.floats(1e-300, 0.693))
def test_envelope_is_increasing_convex_and_under_its_chord(a, b):
    mid = ev.variance_envelope((a + b) / 2)
    assert mid <= (ev.variance_envelope(a) + ev.variance_envelope(b)) / 2 + 1e-15
    assert (ev.variance_envelope(a) - ev.variance_envelope(b)) * (a - b) >= 0
    assert ev.variance_envelope(a) <= ev.simple_envelope(a) * (1 + 1e-14)


@given(positions(radius=300.0))
def test_dispersion_never_exceeds_the_bound(position):
    logp, drift = position
    bound = ev.dispersion_bound(drift_range(drift), entropy(logp))
    assert variance(logp, drift) <= bound * (1 + 1e-9)


@given(log_distributions(sizes=(2, 3, 5)))
def test_worst_drift_of_range_one_is_a_subset(logp):
    """Brute force over all {0, 1}^V drifts: the bound holds, and two tokens attain it."""
    best = max(variance(logp, np.array(s, float)) for s in itertools.product((0, 1), repeat=len(logp)))
    bound = ev.variance_envelope(entropy(logp))
    assert best <= bound * (1 + 1e-9)
    if len(logp) == 2:
        np.testing.assert_allclose(best, bound, rtol=1e-8)


@given(log_distributions())
def test_a_token_obeys_the_envelope(logp):
    p = np.exp(logp)
    top = np.argmax(p)
    smaller = np.where(np.arange(len(p)) == top, np.minimum(p, np.delete(p, top).sum()), np.minimum(p, 1 - p))
    assert np.all(smaller <= ev.inverse_binary_entropy(entropy(logp)) * (1 + 1e-9))


def test_plateau_is_attained_above_ln2():
    logp = np.log([0.5, 0.25, 0.125, 0.125])
    np.testing.assert_allclose(variance(logp, [1.0, 0, 0, 0]), ev.variance_envelope(entropy(logp)))


def test_bad_entropy_is_refused():
    for bad in (-1e-9, np.nan):
        with pytest.raises(RangeError, match="entropy"):
            ev.variance_envelope(bad)
        with pytest.raises(RangeError, match="entropy"):
            ev.simple_envelope(bad)
