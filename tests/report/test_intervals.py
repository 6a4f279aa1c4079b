"""Intervals against scipy's own, coverage by simulation, and the degenerate sizes."""

import numpy as np
import pytest
from scipy import stats

from entr_lab.errors import ShapeError
from entr_lab.report.intervals import Interval, mean_interval, paired_difference


def test_matches_scipy_t_interval():
    values = np.array([0.91, 0.88, 0.95, 0.79, 0.90])

    interval = mean_interval(values)

    low, high = stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))
    assert interval.low == pytest.approx(low, abs=1e-12)
    assert interval.high == pytest.approx(high, abs=1e-12)


def test_covers_the_truth_95_times_in_100():
    rng = np.random.default_rng(20261129)
    hits = sum(_covers(rng) for _ in range(4000))

    assert 0.935 < hits / 4000 < 0.965


def _covers(rng: np.random.Generator) -> bool:
    interval = mean_interval(rng.normal(0.3, 2.0, 8))
    return interval.low <= 0.3 <= interval.high


def test_one_value_has_no_interval_and_none_has_no_mean():
    one = mean_interval([0.5])

    assert one.mean == 0.5
    assert np.isnan(one.half)
    assert not one.excludes_zero
    assert str(one) == "0.500 ± –"
    assert np.isnan(mean_interval([]).mean)


def test_non_finite_values_are_left_out_and_counted():
    assert mean_interval([1.0, np.nan, 3.0, np.inf]) == mean_interval([1.0, 3.0])


def test_pairing_removes_what_the_seeds_share():
    rng = np.random.default_rng(5)
    shared = rng.normal(0, 1, 8)

    paired = paired_difference(shared + 0.1 + rng.normal(0, 1e-3, 8), shared)

    assert paired.excludes_zero
    assert paired.half < 0.01 < mean_interval(shared).half


def test_a_seed_missing_on_one_side_is_left_out_of_the_pair():
    assert paired_difference([1.0, np.nan, 2.0], [0.5, 5.0, 1.5]).n == 2


def test_refuses_unequal_seeds():
    with pytest.raises(ShapeError, match="paired values must be"):
        paired_difference([1.0, 2.0], [1.0])


def test_signed_text():
    assert Interval(0.1, 0.02, 8).signed() == "+0.100 ± 0.020"
    assert Interval(-0.1, float("nan"), 1).signed() == "-0.100 ± –"
