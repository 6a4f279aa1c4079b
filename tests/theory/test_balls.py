"""The cover: it proves what holds, it never proves what does not, and it restores the precision."""

import pytest
from flint import arb, ctx

from entr_lab.errors import TheoryError
from entr_lab.theory.balls import ball, cover, precision, series


def test_cover_decides_a_true_inequality_and_counts_boxes():
    assert cover("square", [((0.5, 2.0),)], lambda b: bool(b[0] ** 2 - b[0] + 1 > 0)) >= 1
    assert cover("product", [((0.0, 1.0), (0.0, 1.0))], lambda b: bool(b[0] * b[1] < 1.5)) == 1


@pytest.mark.parametrize("offset", [0.0, 1e-6])
def test_cover_fails_loudly_on_equality_or_violation(offset):
    with pytest.raises(TheoryError, match="'touch' is undecided"):
        cover("touch", [((0.0, 1.0),)], lambda b: bool((b[0] - arb(1) / 3) ** 2 - offset > 0))


def test_nothing_is_decided_by_nan():
    with pytest.raises(TheoryError):
        cover("nan", [((-1.0, 1.0),)], lambda b: bool(arb("nan") > 0))


def test_ball_contains_its_ends():
    b = ball(0.1, 0.7)
    assert b.contains(arb(0.1))
    assert b.contains(arb(0.7))


def test_series_is_a_polynomial_with_its_remainder():
    got = series(lambda k: arb(k + 1), arb(0.5), 4, arb(1) / 8)
    exact = sum((k + 1) * 0.5**k for k in range(4))
    assert got.contains(arb(exact + 0.12))
    assert not got.contains(arb(exact + 0.13))


def test_precision_is_restored_after_an_error():
    before = ctx.prec

    def inside():
        with precision(333):
            assert ctx.prec == 333
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        inside()
    assert ctx.prec == before
