"""Draws: the same groups whatever is asked first, and streams that do not disturb each other."""

from __future__ import annotations

import numpy as np
import pytest

from entr_lab.sim.plan_config import parse_plan, with_protocol
from entr_lab.sim.plan_draws import Draws
from tests.sim.test_plan_config import changed

PLAN = parse_plan(
    changed(
        tools={"turns": 2.0, "max_turns": 5, "seconds": 3.0},
        failures={"mean_seconds": 50.0, "repair_seconds": 1.0},
        protocol={"zero_variance": 0.25},
    )
)


def test_groups_do_not_depend_on_the_order_of_asking() -> None:
    one, two = Draws(PLAN, 4), Draws(PLAN, 4)
    late = one.group(700)
    one.tool_wait()
    one.life_time()
    assert two.group(3) == one.group(3)
    assert two.group(700) == late
    assert Draws(PLAN, 5).group(3) != one.group(3)


def test_the_protocol_does_not_change_the_lengths() -> None:
    other = with_protocol(PLAN, mode="split-sync", zero_variance=0.0)
    assert [Draws(PLAN, 1).group(i)[:2] for i in range(9)] == [Draws(other, 1).group(i)[:2] for i in range(9)]


def test_draws_have_the_means_asked() -> None:
    draws = Draws(PLAN, 0)
    assert np.mean([draws.tool_wait() for _ in range(20_000)]) == pytest.approx(3.0, rel=0.05)
    assert np.mean([draws.life_time() for _ in range(20_000)]) == pytest.approx(50.0, rel=0.05)
    assert np.mean([draws.group(i).flat for i in range(4000)]) == pytest.approx(0.25, abs=0.03)


def test_what_is_forgotten_is_gone() -> None:
    draws = Draws(PLAN, 0)
    draws.group(0)
    draws.forget(0)
    draws.forget(0)
    with pytest.raises(KeyError):
        draws.group(0)
