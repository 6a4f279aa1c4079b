"""Presets, their differences, and refused scenarios."""

from __future__ import annotations

import numpy as np
import pytest

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.sim.lag import LagTable
from entr_lab.sim.scenario import PRESETS, LagSettings, Scenario, make_scenario


def test_presets_differ_in_drift_and_recording_error_only() -> None:
    numbers = {
        name: (scenario.optimiser.learning_rate, scenario.engine.recording_error)
        for name in PRESETS
        if (scenario := make_scenario(name)).task == Scenario().task and scenario.lag == Scenario().lag
    }
    assert numbers == {
        "default": (5e-4, 3e-4),
        "collapse": (1e-3, 1e-3),
        "exact-mu": (5e-4, 0.0),
        "drift": (1.5e-3, 0.0),
    }


def test_default_is_the_measured_problem() -> None:
    scenario = make_scenario()
    assert scenario.rollouts == 64
    assert scenario.task.horizon == 48
    assert scenario.shape.n_parameters == 12_928
    assert (scenario.lag.inter, scenario.lag.intra, scenario.lag.staleness) == (22, 8, 30)


def test_overrides() -> None:
    scenario = make_scenario("drift", lag=LagSettings.of_staleness(60), updates=9)
    assert (scenario.updates, scenario.lag.inter, scenario.lag.intra) == (9, 44, 16)
    assert scenario.optimiser.learning_rate == 1.5e-3


def test_a_table_of_lags_takes_the_place_of_the_law() -> None:
    table = LagTable(np.full((5, 48), 3))
    lag = LagSettings(table=table)
    assert lag.staleness == 3
    assert Scenario(lag=lag).lag.lag_table(48) is table
    with pytest.raises(ConfigError, match="47 tokens per rollout, the task has 48"):
        Scenario(lag=LagSettings(table=LagTable(np.zeros((2, 47), dtype=np.int64))))


def test_bad_input_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'collapse'"):
        make_scenario("colapse")
    for bad in ({"updates": 0}, {"group_size": 1}, {"prompts": 0}, {"eval_every": 0}):
        with pytest.raises(RangeError):
            Scenario(**bad)  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="inter"):
        LagSettings(inter=-1)
