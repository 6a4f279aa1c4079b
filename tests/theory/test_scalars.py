"""Scalars against ball arithmetic at 1200 bits, over the whole float64 range."""

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.theory.scalars import binary_entropy, g, phi, xexp


@pytest.fixture(autouse=True)
def _precision():
    old, ctx.prec = ctx.prec, 1200
    yield
    ctx.prec = old


def exact(ball):
    return float(ball.mid())


POINTS = [0.0, 1e-300, 1e-12, 1e-5, 0.3, 0.999, 1.0, 1.001, 2.0, 30.0, 700.0]


@pytest.mark.parametrize("x", POINTS + [-x for x in POINTS])
def test_phi_and_g_match_ball_arithmetic(x):
    a = arb(x)
    want_g = exact(a.expm1() - a) if abs(x) > 1e-290 else 0.0
    want_phi = exact((a.expm1() - a) / a**2) if abs(x) > 1e-30 else 0.5
    np.testing.assert_allclose(phi(x), want_phi, rtol=3e-15)
    if abs(x) > 1e-150:
        np.testing.assert_allclose(g(x), want_g, rtol=3e-15)
    assert g(x) >= 0


@given(st.floats(-700, 700), st.floats(-700, 700))
def test_phi_increases(x, y):
    low, high = sorted((x, y))
    assert phi(low) <= phi(high) * (1 + 4e-15)


def test_phi_is_continuous_where_the_formula_changes():
    for edge in (-1.0, 1.0):
        left, right = phi(np.nextafter(edge, -2)), phi(np.nextafter(edge, 2))
        np.testing.assert_allclose(left, right, rtol=4e-15)


@pytest.mark.parametrize("q", [1e-300, 1e-16, 1e-3, 0.25, 0.5, 0.9, 1 - 1e-12])
def test_binary_entropy(q):
    a = arb(q)
    np.testing.assert_allclose(binary_entropy(q), exact(-a * a.log() - (1 - a) * (1 - a).log()), rtol=3e-15)


def test_binary_entropy_ends():
    assert binary_entropy(0.0) == 0.0
    assert binary_entropy(1.0) == 0.0


def test_xexp_overflows_silently():
    assert xexp(1000.0) == np.inf
