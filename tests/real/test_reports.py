"""Every kind of report is one of the union that the loop matches on."""

from typing import get_args

from entr_lab.real import reports


def test_the_union_holds_every_kind():
    kinds = {getattr(reports, name) for name in reports.__all__ if name != "Report"}
    assert set(get_args(reports.Report)) == kinds
