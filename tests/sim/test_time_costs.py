"""Costs: ranges, and the formulas of a step."""

from __future__ import annotations

import pytest

from entr_lab.errors import RangeError
from entr_lab.sim.time_costs import EngineCosts, SyncCosts, TrainerCosts


@pytest.mark.parametrize(
    "build",
    [
        lambda: EngineCosts((0.0,), 0.0, 0.0),
        lambda: EngineCosts((0.0, 0.0), 0.0, 0.0),
        lambda: EngineCosts((0.0, 1.0), -1.0, 0.0),
        lambda: TrainerCosts(-1.0, 0.0),
        lambda: SyncCosts(-0.1),
    ],
)
def test_negative_costs_are_refused(build) -> None:
    with pytest.raises(RangeError):
        build()


def test_a_trainer_step_is_affine_in_tokens() -> None:
    assert TrainerCosts(2.0, 0.5).step(10) == 7.0
    assert TrainerCosts(2.0, 0.5).scaled(3.0).step(10) == 21.0


def test_seconds_per_token_share_a_step_among_its_sequences() -> None:
    costs = EngineCosts.linear(0.25, 0.5, slots=4, kv=0.125)
    assert costs.slots == 4
    assert costs.seconds_per_token(2, 6.0) == (0.25 + 2 * 0.5 + 6 * 0.125) / 2
    assert costs.scaled(2.0).seconds_per_token(2, 6.0) == 0.25 + 2 * 0.5 + 6 * 0.125
