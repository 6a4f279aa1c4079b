"""Certificates at two precisions, and that a false lemma cannot be certified by the same machinery."""

import numpy as np
import pytest
from flint import arb, ctx

from entr_lab.errors import RangeError, TheoryError, UnknownNameError
from entr_lab.theory import certificates as ct
from entr_lab.theory.balls import ball, cover, precision
from entr_lab.theory.scalars import phi


@pytest.mark.parametrize("name", list(ct.CERTIFICATES))
def test_certified_at_two_precisions(name):
    first, second = ct.certify(name, bits=64), ct.certify(name, bits=128)
    assert first.boxes > 0
    assert (first.name, first.claim, first.range, first.ends) == (second.name, second.claim, second.range, second.ends)
    assert (first.bits, second.bits) == (64, 128)
    assert abs(first.boxes - second.boxes) <= 0.1 * second.boxes


@pytest.mark.parametrize("x", [-700.0, -4.0, -3.9, -0.5, 0.0, 1e-9, 3.0, 4.1, 600.0])
def test_enclosures_contain_the_function(x):
    """φ from its own implementation lies in the ball over a box around x, and φ′ in the ball of secants."""
    with precision(128):
        low, high = x - 1e-3, x + 1e-3
        box = ct._phi_derivative(ball(low, high), 0)
        if box.is_finite():
            assert box.overlaps(arb(float(phi(x))) * (1 + arb(0, 1) * 1e-14))
        inner = ct._phi_derivative(arb(x), 1)
        if inner.is_finite():
            secant = (ct._phi_derivative(arb(high), 0) - ct._phi_derivative(arb(low), 0)) / (arb(high) - arb(low))
            assert float(abs(secant / inner - 1).mid()) < 1e-5
            second = ct._phi_derivative(arb(x), 2)
            slope = (ct._phi_derivative(arb(high), 1) - ct._phi_derivative(arb(low), 1)) / (arb(high) - arb(low))
            assert float(abs(slope / second - 1).mid()) < 1e-5


def test_a_false_lemma_is_not_certified():
    """φ(x) ≤ φ(0.99 M) on |x| ≤ M is false near x = M: the cover must fail."""

    def wrong(box):
        M, s = box
        return bool(ct._phi_derivative(arb(0.99) * M, 0) - ct._phi_derivative(s * M, 0) > 0)

    with precision(64), pytest.raises(TheoryError, match="undecided"):
        cover("false", [((1.0, 2.0), (0.0, 1.0))], wrong)


def test_envelope_inverse_fails_on_a_wrong_solver(monkeypatch):
    right = ct.variance_envelope
    monkeypatch.setattr(ct, "variance_envelope", lambda H: np.asarray(right(H)) * (1 + 1e-12))
    with pytest.raises(TheoryError, match="envelope_inverse"):
        ct.certify("envelope_inverse")


def test_bad_requests_are_refused_and_precision_is_left_alone():
    before = ctx.prec
    with pytest.raises(UnknownNameError, match="bennett"):
        ct.certify("benett")
    with pytest.raises(RangeError, match="bits"):
        ct.certify("bennett", bits=8)
    assert ctx.prec == before
