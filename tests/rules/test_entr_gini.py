"""ENTR on the Gini–Simpson index: the claims of its docstring, on distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.rules import Entr, EntrGini
from tests.strategies import from_ratios


def _random_positions(n_positions: int, size: int) -> tuple[list[float], list[float]]:
    """Entropy and Σμ² of random distributions, from peaked to flat."""
    generator = np.random.default_rng(8)
    entropy, collision = [], []
    for concentration in np.geomspace(0.02, 20.0, n_positions):
        mu = generator.dirichlet(np.full(size, concentration)) + 1e-300
        entropy.append(float(-(mu * np.log(mu)).sum()))
        collision.append(float((mu**2).sum()))
    return entropy, collision


def test_boundary_is_inclusive() -> None:
    # G = 1 - 3/4 and eps = 0: the boundary at tau = 1 is exactly 1/2.
    batch = from_ratios([0.5, 0.5000001], collision_mu=[0.75, 0.75])
    assert EntrGini(eps=0.0).keep(batch).tolist() == [True, False]


def test_at_equal_tau_it_is_tighter_than_entr() -> None:
    entropy, collision = _random_positions(200, 30)
    batch = from_ratios([0.0] * 200, entropy_mu=entropy, collision_mu=collision)
    assert (EntrGini().bounds(batch)[1] < Entr().bounds(batch)[1]).all()


def test_index_is_bounded_by_the_entropy_with_equality_at_a_fair_coin() -> None:
    entropy, collision = _random_positions(200, 2)
    assert all(1.0 - c <= h / (2.0 * math.log(2.0)) + 1e-12 for h, c in zip(entropy, collision, strict=True))
    assert pytest.approx(math.log(2.0) / (2.0 * math.log(2.0))) == 0.5


def test_a_collision_that_rounds_above_one_counts_as_certainty() -> None:
    batch = from_ratios([0.1, 0.11], collision_mu=[1.0 + 1e-7, 1.0 + 1e-7], dtype=torch.float64)
    assert EntrGini().keep(batch).tolist() == [True, False]


@pytest.mark.parametrize(("name", "value"), [("tau", 0.0), ("tau", math.inf), ("eps", -0.1), ("eps", math.nan)])
def test_hyper_parameters_out_of_bounds(name: str, value: float) -> None:
    with pytest.raises(RangeError, match=rf"{name} must lie in"):
        EntrGini(**{name: value})
