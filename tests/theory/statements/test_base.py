"""The verdict of a check: a violation is seen wherever it hides, and a sharp claim is held to account."""

import numpy as np
import pytest

from entr_lab.theory.adversary import Position
from entr_lab.theory.dispersion import entropy
from entr_lab.theory.statements.base import Part, Search, Statement, check_parts, measured, ratio_of

HOW = Search(0, 20, np.inf)


def test_a_violation_is_reported_with_its_instance():
    part = Part("H ≤ 1", lambda p: entropy(p.logp_mu), sharp=False)
    (found,) = check_parts(part)(HOW)
    assert not found.holds
    assert found.slack == pytest.approx(1 - found.worst)
    assert found.tried > 128


def test_a_violation_only_at_large_vocabularies_is_seen():
    def ratio(p: Position):
        return np.where(p.logp_mu.shape[1] > 50_000, 2.0, 0.5) * np.ones(len(p.logp_mu))

    (found,) = check_parts(Part("large", ratio, sharp=False))(HOW)
    assert not found.holds
    assert found.instance["vocabulary"] == 65_536


def test_sharp_but_not_reached_says_so():
    (found,) = check_parts(Part("loose", lambda p: np.full(len(p.logp_mu), 0.5), sharp=True))(HOW)
    assert found.holds
    assert "did not reach" in found.note
    assert set(found.instance) == {"mu"}  # nothing else matters to a constant


def test_rounding_is_tolerated_and_no_more():
    for excess, holds in ((1e-10, True), (1e-8, False)):
        (found,) = check_parts(Part("edge", lambda p, e=excess: np.full(len(p.logp_mu), 1 + e), True))(HOW)
        assert found.holds is holds


def test_measured_has_a_tolerance():
    assert measured("x", 0.52, 0.5, 0.05, tried=1).holds
    assert not measured("x", 0.56, 0.5, 0.05, tried=1).holds
    assert not measured("x", float("nan"), 0.5, 0.05, tried=1).holds


def test_ratio_of_ignores_what_should_vanish():
    np.testing.assert_array_equal(ratio_of(np.array([0.0, 1e-300, 2.0]), np.array([0.0, 0.0, 1.0]), 1e-290), [0, 0, 2])
    assert ratio_of(np.array([1.0]), np.array([0.0]))[0] == np.inf


def test_certificates_come_with_the_statement():
    s = Statement("X", "t", "ours", "p", lambda how: [], ("amplification",))
    assert s.certify(bits=64)[0].name == "amplification"
