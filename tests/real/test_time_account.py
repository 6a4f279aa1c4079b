"""Seconds in states, by hand."""

from __future__ import annotations

import pytest

from entr_lab.real.time_account import TimeAccount


def test_shares_by_hand() -> None:
    account = TimeAccount(10.0, "starting")
    account.enter("trains", 12.0)
    account.enter("trains", 13.0)
    account.enter("waits", 15.0)
    assert account.shares(20.0) == pytest.approx({"starting": 0.2, "trains": 0.3, "waits": 0.5})
    account.enter("trains", 20.0)
    assert account.shares(30.0) == pytest.approx({"starting": 0.1, "trains": 0.65, "waits": 0.25})


def test_no_time_has_passed() -> None:
    assert TimeAccount(1.0, "starting").shares(1.0) == {"starting": 0.0}
