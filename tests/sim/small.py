"""A learning scenario of a few hundred milliseconds, for tests of structure rather than of learning."""

from __future__ import annotations

from dataclasses import replace

from entr_lab.sim.lag import LagTable
from entr_lab.sim.learner import AdamSettings
from entr_lab.sim.recording import EngineErrors
from entr_lab.sim.scenario import LagSettings, Scenario
from entr_lab.sim.tasks import ToolCallTask
from entr_lab.sim.warm_start import WarmStart

SMALL = Scenario(
    name="small",
    task=ToolCallTask(turns=2),
    warm_start=WarmStart(steps=60, tokens=128, episodes=64),
    optimiser=AdamSettings(learning_rate=2e-3),
    engine=EngineErrors(flip_probability=0.05, recording_error=1e-2),
    lag=LagSettings(inter=2, intra=1),
    updates=7,
    prompts=4,
    group_size=4,
    eval_every=3,
    eval_rollouts=16,
)


def with_lag(inter: int, intra: int, table: LagTable | None = None) -> Scenario:
    """Return the small scenario under another lag."""
    return replace(SMALL, lag=LagSettings(inter=inter, intra=intra, table=table))
