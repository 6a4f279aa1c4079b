"""Every statement of the specification has its row, holds, and reaches equality where it claims to be sharp."""

import pytest

from entr_lab.errors import TheoryError, UnknownNameError
from entr_lab.theory import statements as st
from entr_lab.theory.certificates import CERTIFICATES
from tests.theory.statements.checks import HOW

COUNTS = {"A": 6, "B": 5, "C": 4, "D": 2, "E": 4, "F": 2, "G": 4}
IDS = [f"{section}{k}" for section, count in COUNTS.items() for k in range(1, count + 1)]


def test_every_statement_has_its_row():
    assert list(st.STATEMENTS) == IDS
    for s in st.STATEMENTS.values():
        assert s.title
        assert s.proof
        assert s.source.split()[0].rstrip(";") in {"paper", "ours", "textbook", "arXiv"}
    assert {c for s in st.STATEMENTS.values() for c in s.certificates} == set(CERTIFICATES)


def test_no_statement_about_masking_bounds_the_full_divergence():
    for name in ("E1", "E2", "E3", "E4", "G2", "G3"):
        assert "KL" not in st.STATEMENTS[name].title
    assert "accepted" in st.STATEMENTS["A3"].title
    assert "rejected" in st.STATEMENTS["A3"].proof
    findings = st.STATEMENTS["A3"].check(st.Search(0, 1, 0.0))
    assert any(f.part == "accepted + rejected = KL" and "rejected region" in f.note for f in findings)


def test_result_carries_everything():
    result = st.run_statement("C2", HOW, bits=64)
    assert result.holds
    assert result.sharp == "attained"
    assert result.slack == pytest.approx(1 - result.worst)
    assert [c.name for c in result.certificates] == ["amplification"]
    assert st.run_statement("F2", HOW).slack is None


def test_an_undecided_certificate_is_not_a_pass(monkeypatch):
    def undecided(self, *, bits=128):
        raise TheoryError("certificate 'x' is undecided")

    monkeypatch.setattr(st.Statement, "certify", undecided)
    result = st.run_statement("C2", HOW)
    assert not result.holds
    assert "undecided" in result.undecided


def test_unknown_statement():
    with pytest.raises(UnknownNameError, match="did you mean 'B3'"):
        st.run_statement("B33", HOW)
