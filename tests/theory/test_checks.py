"""Running many statements: order, workers, progress, refusals."""

import pytest

from entr_lab.errors import RangeError, UnknownNameError
from entr_lab.theory.checks import verify

QUICK = ["F2", "D1", "C2", "A4"]


def test_order_is_the_tables_and_progress_is_told():
    seen = []
    results = verify(QUICK, budget=1.0, progress=lambda done, total, ids: seen.append((done, total)))
    assert [r.id for r in results] == ["A4", "C2", "D1", "F2"]
    assert all(r.holds for r in results)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_workers_change_nothing():
    alone, together = verify(["C2", "F2"], seed=4), verify(["C2", "F2"], seed=4, workers=2)
    assert alone == together


def test_refusals():
    with pytest.raises(UnknownNameError, match="B3"):
        verify(["B33"])
    for bad in (0.0, float("nan")):
        with pytest.raises(RangeError, match="budget"):
            verify(["F2"], budget=bad)
