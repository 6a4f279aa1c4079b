"""Staleness parts and the telescoping split on a trajectory that spans versions."""

import numpy as np
import pytest

from entr_lab.errors import DataError, ShapeError
from entr_lab.theory.versions import split_log_ratio, staleness_parts


def test_parts_add_up_to_the_first_tokens_staleness():
    assert staleness_parts([3, 3, 5, 8], 21) == (5, 13)
    assert staleness_parts([4], 4) == (0, 0)


@pytest.mark.parametrize(("versions", "target"), [([], 3), ([3, 2], 5), ([3, 6], 5)])
def test_impossible_versions_are_refused(versions, target):
    with pytest.raises(DataError, match="non-decreasing"):
        staleness_parts(versions, target)


def test_split_telescopes_and_each_part_is_what_it_says():
    rng = np.random.default_rng(0)
    table = -5 * rng.random((9, 6))
    v = np.array([1, 1, 2, 4, 4, 6])
    recorded = table[v, np.arange(6)] + 1e-3 * rng.standard_normal(6)
    parts = split_log_ratio(recorded, v, table, 8)
    np.testing.assert_allclose(sum(parts), table[8] - recorded, rtol=0, atol=1e-14)
    for t in range(6):
        assert parts.mismatch[t] == table[v[t], t] - recorded[t]
        assert parts.intra_drift[t] == table[6, t] - table[v[t], t]
        assert parts.inter_drift[t] == table[8, t] - table[6, t]
    assert parts.intra_drift[-1] == 0.0


def test_no_drift_and_no_mismatch_are_exact_zeros():
    table = np.tile(-np.arange(1.0, 4.0), (3, 1))
    parts = split_log_ratio(table[0], [0, 1, 1], table, 2)
    assert all(np.all(p == 0.0) for p in parts)


def test_missing_versions_are_refused():
    with pytest.raises(ShapeError, match="logp_by_version"):
        split_log_ratio(np.zeros(2), [0, 1], np.zeros((2, 2)), 2)
