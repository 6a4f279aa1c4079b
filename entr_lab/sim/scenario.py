"""Scenarios of the learning level: everything that fixes a run's numbers besides method and seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from entr_lab.errors import ConfigError, check_choice, check_range
from entr_lab.sim.lag import LagTable, exact_lag, split_staleness
from entr_lab.sim.learner import AdamSettings
from entr_lab.sim.policy import PolicyShape
from entr_lab.sim.recording import EngineErrors
from entr_lab.sim.tasks import ToolCallTask
from entr_lab.sim.warm_start import WarmStart

__all__ = ["PRESETS", "LagSettings", "Scenario", "make_scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSettings:
    """How stale the asynchronous methods' rollouts are.

    Args:
        inter: versions between a rollout's last token and the update.
        intra: weight updates during a rollout.
        table: lags per rollout and token in place of the exact law of inter and intra.

    Raises:
        RangeError: a lag is negative.
    """

    inter: int = 22
    intra: int = 8
    table: LagTable | None = None

    def __post_init__(self) -> None:
        check_range("inter", self.inter, low=0)
        check_range("intra", self.intra, low=0)

    @property
    def staleness(self) -> int:
        """Largest lag of any token, in versions."""
        return self.inter + self.intra if self.table is None else self.table.depth - 1

    @classmethod
    def of_staleness(cls, staleness: int) -> LagSettings:
        """Split a total staleness as 30 = 22 + 8."""
        inter, intra = split_staleness(staleness)
        return cls(inter=inter, intra=intra)

    def lag_table(self, horizon: int) -> LagTable:
        """Return the lag of every token.

        Raises:
            ConfigError: the given table is for another horizon.
        """
        if self.table is None:
            return exact_lag(self.inter, self.intra, horizon)
        if self.table.lags.shape[1] != horizon:
            raise ConfigError(
                f"the lag table is for {self.table.lags.shape[1]} tokens per rollout, the task has {horizon}; "
                f"build it for that horizon."
            )
        return self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One training problem under staleness.

    Raises:
        RangeError: a count is below its bound.
    """

    name: str = "default"
    task: ToolCallTask = field(default_factory=ToolCallTask)
    warm_start: WarmStart = field(default_factory=WarmStart)
    optimiser: AdamSettings = field(default_factory=AdamSettings)
    engine: EngineErrors = field(default_factory=EngineErrors)
    lag: LagSettings = field(default_factory=LagSettings)
    updates: int = 140
    prompts: int = 8
    """B, prompts per update."""
    group_size: int = 8
    """G, rollouts per prompt."""
    eval_every: int = 5
    """Updates between evaluations; one more is taken before the first update and one after the last."""
    eval_rollouts: int = 64
    embedding: int = 16
    hidden: int = 64

    def __post_init__(self) -> None:
        check_range("updates", self.updates, low=1, high=1_000_000)
        for name in ("prompts", "eval_every", "eval_rollouts", "embedding", "hidden"):
            check_range(name, getattr(self, name), low=1)
        check_range("group_size", self.group_size, low=2)
        self.lag.lag_table(self.task.horizon)

    @property
    def rollouts(self) -> int:
        """R = B·G, rollouts per update."""
        return self.prompts * self.group_size

    @property
    def shape(self) -> PolicyShape:
        """Sizes of the policy."""
        return PolicyShape(
            features=self.task.feature_sizes,
            vocabulary=self.task.vocabulary,
            embedding=self.embedding,
            hidden=self.hidden,
        )


def _preset(name: str, learning_rate: float, recording_error: float) -> Callable[[], Scenario]:
    def build() -> Scenario:
        return Scenario(
            name=name,
            optimiser=AdamSettings(learning_rate=learning_rate),
            engine=EngineErrors(recording_error=recording_error),
        )

    return build


PRESETS: Final[dict[str, tuple[Callable[[], Scenario], str]]] = {
    "default": (_preset("default", 5e-4, 3e-4), "LLM-like drift, recorded probabilities with an error of 3e-4"),
    "collapse": (_preset("collapse", 1e-3, 1e-3), "stress: twice the drift, an error of 1e-3; async and KPop collapse"),
    "exact-mu": (_preset("exact-mu", 5e-4, 0.0), "exact recorded probabilities: no rule differs at this drift"),
    "drift": (_preset("drift", 1.5e-3, 0.0), "stress: three times the drift, exact recorded probabilities"),
}
"""Builder and one-line description of each preset."""


def make_scenario(preset: str = "default", *, lag: LagSettings | None = None, updates: int | None = None) -> Scenario:
    """Return a preset, with another lag or number of updates if given.

    Raises:
        UnknownNameError: no such preset.
        RangeError: `updates` is below 1.
    """
    scenario = PRESETS[check_choice("preset", preset, PRESETS)][0]()
    if lag is not None:
        scenario = replace(scenario, lag=lag)
    return scenario if updates is None else replace(scenario, updates=updates)
