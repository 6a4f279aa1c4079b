"""The two halves of ENTR: which tokens each one moves, against a constant threshold and against the whole."""

from __future__ import annotations

import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.rules import Entr, EntrExplore, EntrOutlier, Fixed
from entr_lab.testing import adversarial_batch
from tests.strategies import from_ratios

CONSTANT = 0.8


@pytest.fixture
def masks() -> dict[str, torch.Tensor]:
    batch = adversarial_batch(6, 2000)
    rules = {
        "fixed": Fixed(threshold=CONSTANT),
        "entr": Entr(),
        "explore": EntrExplore(threshold=CONSTANT),
        "outlier": EntrOutlier(threshold=CONSTANT),
    }
    return {name: rule.keep(batch) for name, rule in rules.items()}


def test_exploration_preservation_keeps_what_either_accepts(masks: dict[str, torch.Tensor]) -> None:
    assert torch.equal(masks["explore"], masks["fixed"] | masks["entr"])


def test_outlier_suppression_keeps_what_both_accept(masks: dict[str, torch.Tensor]) -> None:
    assert torch.equal(masks["outlier"], masks["fixed"] & masks["entr"])


def test_each_half_changes_some_tokens(masks: dict[str, torch.Tensor]) -> None:
    assert (masks["explore"] & ~masks["fixed"]).any()
    assert (masks["fixed"] & ~masks["outlier"]).any()


def test_a_certain_position_and_an_uncertain_one() -> None:
    # |δ| = 0.5 at H = 0 (b = 0.1) is an outlier; |δ| = 1.3 at H = 2 (b = 1.42) is exploration.
    batch = from_ratios([0.5, 1.3], entropy_mu=[0.0, 2.0])
    assert Fixed().keep(batch).tolist() == [True, False]
    assert EntrExplore().keep(batch).tolist() == [True, True]
    assert EntrOutlier().keep(batch).tolist() == [False, False]


@pytest.mark.parametrize("kind", [EntrExplore, EntrOutlier])
@pytest.mark.parametrize(("name", "value"), [("threshold", 0.0), ("tau", -1.0), ("eps", -0.1)])
def test_hyper_parameters_out_of_bounds(kind: type[EntrExplore], name: str, value: float) -> None:
    with pytest.raises(RangeError, match=rf"{name} must lie in"):
        kind(**{name: value})


@pytest.mark.parametrize("kind", [EntrExplore, EntrOutlier])
def test_scaling_scales_both_boundaries(kind: type[EntrExplore]) -> None:
    entropy = torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64)
    batch = from_ratios([0.0] * 3, entropy_mu=entropy.tolist())
    wide = kind().scaled(2.0)
    for narrow, doubled in zip(kind().bounds(batch), wide.bounds(batch), strict=True):
        torch.testing.assert_close(2.0 * narrow, doubled)
