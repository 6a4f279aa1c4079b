"""Boundaries against their inequalities written out in probability space, one token at a time."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.theory import boundary as bd
from entr_lab.theory.envelope import LN2
from entr_lab.theory.scalars import binary_entropy


@given(st.floats(-20, 20), st.floats(0, 11), st.floats(0.1, 5), st.floats(1e-3, 1))
def test_entr_keep_is_the_boundary(delta, H, tau, eps):
    b = float(bd.entr_boundary(H, tau=tau, eps=eps))
    assume(abs(abs(delta) - b) > 1e-12)
    assert bool(bd.keep_entr(delta, H, tau=tau, eps=eps)) == (abs(delta) <= b)


def test_entr_boundary_includes_its_end_and_has_the_stated_limits():
    assert bd.keep_entr(0.5, 0.15, tau=1.0, eps=0.1)
    assert not bd.keep_entr(0.5000001, 0.15, tau=1.0, eps=0.1)
    np.testing.assert_allclose(bd.entr_boundary(0.0, tau=1.6, eps=0.01), math.sqrt(0.016))
    np.testing.assert_allclose(bd.entr_boundary(1e8, tau=1.6, eps=0.01) / math.sqrt(1.6e8), 1.0, rtol=1e-9)


@given(st.floats(0.02, 5), st.floats(0, 10))
def test_entr_crosses_the_constant_once(C, H):
    meet = bd.crossing_entropy(C, eps=0.01)
    assume(abs(H - meet) > 1e-9)
    constant = math.sqrt(1.3 * C)
    assert (bd.entr_boundary(H, tau=1.3, eps=0.01) < constant) == (meet > H)


def test_no_crossing_below_eps():
    with pytest.raises(RangeError, match="reference scale C"):
        bd.crossing_entropy(0.01, eps=0.01)


@given(st.just(0.0) | st.floats(1e-300, 3))
def test_scaled_normalisers_stay_below_the_entropy(H):
    assert bd.scaled_envelope(H) <= H * (1 + 1e-12)
    assert bd.scaled_envelope(LN2) == pytest.approx(LN2)
    assert bd.scaled_gini(0.5) == pytest.approx(LN2)


GOLDEN = [  # μ, π, ENTR at H and τ = 1, ε = .01, IcePop .5–5, KPop φ = .1; derived by hand
    (0.90, 0.88, 0.40, 1, 1, 1),
    (0.02, 0.06, 0.15, 0, 1, 1),
    (0.02, 0.06, 2.5, 1, 1, 1),
    (0.999, 0.90, 0.01, 1, 1, 0),
    (1e-4, 4e-4, 0.05, 0, 1, 1),
    (0.30, 0.10, 1.9, 1, 0, 0),
]


@pytest.mark.parametrize(("mu", "pi", "H", "entr", "icepop", "kpop"), GOLDEN)
def test_golden_decisions(mu, pi, H, entr, icepop, kpop):
    delta = math.log(pi / mu)
    assert bd.keep_entr(delta, H, tau=1.0, eps=0.01) == bool(entr)
    assert bd.keep_band(delta, low=0.5, high=5.0) == bool(icepop)
    assert bd.keep_kpop(math.log(mu), math.log(pi), threshold=0.1) == bool(kpop)
    assert bd.keep_fixed(delta, threshold=1.0) == (abs(delta) <= 1.0)


@given(st.floats(1e-5, 0.999), st.floats(1e-5, 0.999), st.floats(0.01, 2))
def test_kpop_is_the_plain_formula(mu, pi, phi):
    def d(p, q):
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    score = max(d(mu, pi), d(pi, mu))
    assume(abs(score - phi) > 1e-9)
    assert bool(bd.keep_kpop(math.log(mu), math.log(pi), threshold=phi)) == (score <= phi)


def test_kpop_floor_hides_any_ratio_between_tiny_probabilities():
    assert bd.keep_kpop(math.log(1e-30), math.log(9e-7), threshold=0.1)
    assert not bd.keep_kpop(math.log(1e-30), math.log(0.3), threshold=0.1)


@given(st.floats(1e-12, 1), st.floats(-1, 1))
def test_amplification(q, e):
    assume(-q < e <= 1 - q and abs(e) > 1e-12)
    delta = float(bd.log_ratio_of_discrepancy(q, e))
    assert abs(delta) >= bd.amplification_bound(q, e) * (1 - 1e-12)
    assert delta == pytest.approx(math.log(q / (q + e)), rel=1e-6, abs=1e-12)


def test_amplification_is_one_over_q_then_only_logarithmic():
    small = abs(bd.log_ratio_of_discrepancy(1e-3, 1e-9)) / (1e-9 / 1e-3)
    assert small == pytest.approx(1.0, rel=1e-5)
    assert abs(bd.log_ratio_of_discrepancy(1e-12, 1e-3)) == pytest.approx(math.log(1e9), rel=1e-6)


@given(st.floats(1e-6, 0.999), st.floats(0.01, 3), st.floats(-1, 1))
def test_discrepancy_interval_is_the_keep_rule(q, b, e):
    assume(-q < e <= 1 - q)
    low, high = bd.discrepancy_interval(q, b)
    assume(min(abs(e - low), abs(e - high)) > 1e-12)
    assert (low <= e <= high) == (abs(math.log(q / (q + e))) <= b)


@pytest.mark.parametrize(("tau", "eps"), [(1.0, 0.01), (1.6, 0.1), (0.2, 0.01)])
def test_discrepancy_along_the_envelope_peaks_and_comes_back(tau, eps):
    """Not a plateau: the tolerated discrepancy has an interior maximum and falls to its end value."""
    q = np.linspace(0.5, 1.0, 20_001)
    for end in (0, 1):
        e = np.abs(bd.discrepancy_interval(q, bd.entr_boundary(binary_entropy(q), tau=tau, eps=eps))[end])
        peak = int(np.argmax(e))
        assert 0 < peak < len(q) - 1
        assert e[peak] > 1.05 * e[-1]
        assert e[-1] == pytest.approx(abs(math.expm1((-1, 1)[end] * math.sqrt(tau * eps))), rel=1e-9)
        constant = np.abs(bd.discrepancy_interval(q, 1.0)[end])
        np.testing.assert_allclose(constant / q, constant[0] / q[0])


def test_bad_parameters_are_refused():
    with pytest.raises(RangeError, match="tau"):
        bd.entr_boundary(1.0, tau=0.0, eps=0.1)
    with pytest.raises(RangeError, match="eps"):
        bd.keep_entr(1.0, 1.0, tau=1.0, eps=0.0)
    with pytest.raises(RangeError, match="scale"):
        bd.entr_boundary(-1.0, tau=1.0, eps=0.1)
    with pytest.raises(RangeError, match="high"):
        bd.keep_band(0.0, low=2.0, high=1.0)
