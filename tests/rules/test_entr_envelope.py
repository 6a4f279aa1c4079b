"""ENTR on the sharp variance envelope: the envelope against bisection on q, and its place beside ENTR."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.rules import Entr, EntrEnvelope
from entr_lab.rules.entr_envelope import variance_envelope
from tests import reference
from tests.strategies import from_ratios


@given(st.one_of(st.floats(1e-12, math.log(2.0)), st.floats(-12.0, -0.2).map(lambda power: 10.0**power)))
def test_envelope_equals_bisection_on_the_probability(entropy: float) -> None:
    found = variance_envelope(torch.tensor([entropy], dtype=torch.float64)).item()
    assert found == pytest.approx(reference.variance_envelope(entropy), rel=1e-9)


def test_envelope_solves_its_equation() -> None:
    q = torch.cat((torch.logspace(-26, -0.31, 2000), 0.5 - torch.logspace(-7, -1, 500))).double()
    entropy = -q * q.log() - (1.0 - q) * torch.log1p(-q)
    torch.testing.assert_close(variance_envelope(entropy), q * (1.0 - q), rtol=1e-10, atol=0.0)


def test_ends_of_the_envelope() -> None:
    entropy = torch.tensor([-1e-5, 0.0, math.log(2.0), 0.7, 5.0], dtype=torch.float64)
    assert variance_envelope(entropy).tolist() == [0.0, 0.0, 0.25, 0.25, 0.25]


def test_envelope_keeps_the_precision_of_its_input() -> None:
    assert variance_envelope(torch.tensor([0.3], dtype=torch.bfloat16)).dtype == torch.float32
    assert variance_envelope(torch.tensor([0.3], dtype=torch.float64)).dtype == torch.float64


def test_equals_entr_at_certainty_and_at_a_fair_coin_and_is_tighter_elsewhere() -> None:
    equal = from_ratios([0.0] * 2, entropy_mu=[0.0, math.log(2.0)])
    torch.testing.assert_close(EntrEnvelope().bounds(equal)[1], Entr().bounds(equal)[1], rtol=1e-9, atol=0.0)
    other = from_ratios([0.0] * 5, entropy_mu=[1e-3, 0.05, 0.3, 0.6, 1.5])
    assert (EntrEnvelope().bounds(other)[1] < Entr().bounds(other)[1]).all()


@pytest.mark.parametrize(("name", "value"), [("tau", 0.0), ("tau", math.inf), ("eps", -0.1), ("eps", math.nan)])
def test_hyper_parameters_out_of_bounds(name: str, value: float) -> None:
    with pytest.raises(RangeError, match=rf"{name} must lie in"):
        EntrEnvelope(**{name: value})
