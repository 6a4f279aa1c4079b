"""Bisection finds the boundaries that rules declare, each on its own side."""

from __future__ import annotations

import torch

from entr_lab.rules import Entr, Fixed, IcePop, KeepAll, Side
from entr_lab.testing.precision import boundary
from tests.strategies import from_ratios


def test_boundary_of_entr_is_found_on_the_side_of_each_token() -> None:
    batch = from_ratios([0.3, -0.3, 5.0], entropy_mu=[0.0, 1.0, 2.0], dtype=torch.float32)
    expected = Entr().bounds(batch)[1] * torch.tensor([1.0, -1.0, 1.0])
    torch.testing.assert_close(boundary(Entr(), batch).float(), expected, rtol=1e-6, atol=0.0)


def test_an_asymmetric_band_has_two_boundaries() -> None:
    found = boundary(IcePop(), from_ratios([0.3, -0.3]))
    torch.testing.assert_close(found, torch.tensor([5.0, 0.5], dtype=torch.float64).log())


def test_where_no_boundary_is_found_it_is_zero() -> None:
    batch = from_ratios([0.3, 0.3], advantage=[1.0, -1.0])
    assert boundary(KeepAll(), batch).tolist() == [0.0, 0.0]
    found = boundary(Fixed(side=Side.OUTWARD), batch)
    torch.testing.assert_close(found, torch.tensor([1.2, 0.0], dtype=torch.float64))
