"""A constant threshold on |δ|."""

from __future__ import annotations

import math

import pytest

from entr_lab.errors import RangeError
from entr_lab.rules import Fixed, IcePop
from entr_lab.testing import adversarial_batch
from tests.strategies import from_ratios


def test_both_ends_are_inclusive() -> None:
    batch = from_ratios([0.5, -0.5, 0.5000001, -0.5000001])
    assert Fixed(threshold=0.5).keep(batch).tolist() == [True, True, False, False]


def test_entropy_does_not_matter() -> None:
    batch = from_ratios([1.1, 1.1, 1.3], entropy_mu=[0.0, 4.0, 4.0])
    assert Fixed().keep(batch).tolist() == [True, True, False]


def test_equals_a_reciprocal_band_on_the_ratio() -> None:
    batch = adversarial_batch(9, 500)
    band = IcePop(low=1.0 / 3.0, high=3.0)
    assert (Fixed(threshold=math.log(3.0)).keep(batch) == band.keep(batch)).all()


def test_an_infinite_threshold_keeps_all() -> None:
    assert Fixed(threshold=math.inf).keep(from_ratios([-60.0, 60.0])).all()


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, True])
def test_threshold_out_of_bounds(threshold: float) -> None:
    with pytest.raises(RangeError, match=r"threshold must lie in \(0, inf\]"):
        Fixed(threshold=threshold)
