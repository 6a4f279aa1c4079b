"""The lag law, against its formula written out, and tables of lags."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError, ShapeError
from entr_lab.sim.lag import LagTable, exact_lag, split_staleness


@given(inter=st.integers(0, 40), intra=st.integers(0, 40), horizon=st.integers(1, 96), update=st.integers(0, 200))
def test_version_of_every_token_is_the_formula(inter: int, intra: int, horizon: int, update: int) -> None:
    versions = exact_lag(inter, intra, horizon).versions(update, rollouts=4)
    assert versions.shape == (1, horizon)
    for t in range(horizon):
        assert versions[0, t] == max(0, update - inter - intra + int((intra + 1) * t / horizon))


def test_first_token_is_oldest_and_last_is_inter_versions_old() -> None:
    table = exact_lag(22, 8, 48)
    assert (table.lags[0, 0], table.lags[0, -1], table.depth) == (30, 22, 31)
    np.testing.assert_array_equal(np.unique(table.lags), np.arange(22, 31))


def test_no_staleness_is_on_policy() -> None:
    np.testing.assert_array_equal(exact_lag(0, 0, 48).versions(17, 1), np.full((1, 48), 17))


@pytest.mark.parametrize(("staleness", "split"), [(0, (0, 0)), (1, (1, 0)), (30, (22, 8)), (60, (44, 16))])
def test_split_of_a_total(staleness: int, split: tuple[int, int]) -> None:
    assert split_staleness(staleness) == split


def test_table_is_consumed_in_order_round_and_round() -> None:
    table = LagTable(np.arange(10, dtype=np.int64).reshape(5, 2))
    np.testing.assert_array_equal(100 - table.versions(100, rollouts=3), table.lags[[0, 1, 2]])
    np.testing.assert_array_equal(101 - table.versions(101, rollouts=3), table.lags[[3, 4, 0]])
    assert table.versions(2, rollouts=3).min() == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(RangeError, match="staleness"):
        split_staleness(-1)
    with pytest.raises(RangeError, match="inter"):
        exact_lag(-1, 0, 8)
    with pytest.raises(RangeError, match="lag must lie"):
        LagTable(np.array([[0, -1]]))
    with pytest.raises(ShapeError, match="integer table"):
        LagTable(np.zeros((2, 3)))
