"""What is reported after every batch: the update's numbers, throughput, and where everybody's time went. Ours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from entr_lab.pipeline import Batch
from entr_lab.real.ports import StepResult
from entr_lab.real.records import Rollout
from entr_lab.real.time_account import TimeAccount
from entr_lab.real.trainer import TrainStep

__all__ = ["LOOP_METRIC_DOCS", "StepMeter", "StepReport"]

LOOP_METRIC_DOCS: Final[dict[str, str]] = {
    "seconds": "wall time since the loop began, in this process",
    "rollout_tokens_per_second": "sampled tokens of rollouts that finished since the batch before, per second",
    "steps_per_minute": "batches per minute since the loop began",
    "failed_rollouts": "rollouts that came to nothing, so far",
    "lost_generators": "deaths of generators, so far",
}
"""Metrics of the loop. `time/NAME/STATE` is the share of the time that NAME spent in STATE; they sum to 1."""

_WINDOW: Final = 10
"""Batches whose rewards are averaged at the beginning and at the end."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One batch.

    Args:
        step: number of the batch, from 0.
        target_version: that the update started from.
        metrics: numbers by name: of the update, the rule, the attribution and the loop.
        batch: groups and tickets.
        rollouts: of each group.
        train: what the update did.
    """

    step: int
    target_version: int
    metrics: dict[str, float]
    batch: Batch
    rollouts: list[list[Rollout]]
    train: TrainStep


class StepMeter:
    """Counts between two batches, and keeps the time accounts.

    Args:
        now: seconds at the beginning.
        workers: their names.
    """

    def __init__(self, now: float, workers: Iterable[str]) -> None:
        self.tokens = self.failed = self.lost = self._steps = self._all_tokens = 0
        self._rewards: list[float] = []
        self._began = self._last = now
        self._accounts = {name: TimeAccount(now, "starting") for name in (*workers, "trainer")}
        self._states: dict[str, str] = {}

    def enter(self, name: str, state: str, now: float) -> None:
        """Note what a worker or the trainer does from now on."""
        self._states[name] = state
        self._accounts[name].enter(state, now)

    def states(self) -> str:
        """Return who is in which state, as text."""
        return ", ".join(f"{name} {state}" for name, state in self._states.items())

    def report(self, batch: Batch, rollouts: list[list[Rollout]], result: StepResult, now: float) -> StepReport:
        """Return the report of a batch and count anew."""
        self._steps += 1
        loop = {
            "seconds": now - self._began,
            "rollout_tokens_per_second": self.tokens / max(now - self._last, 1e-9),
            "steps_per_minute": 60 * self._steps / max(now - self._began, 1e-9),
            "failed_rollouts": float(self.failed),
            "lost_generators": float(self.lost),
        }
        for name, account in self._accounts.items():
            loop |= {f"time/{name}/{state}": share for state, share in account.shares(now).items()}
        self._all_tokens += self.tokens
        self.tokens, self._last = 0, now
        self._rewards.append(result.train.metrics["reward_mean"])
        metrics = {**result.train.metrics, **result.attribution, **loop}
        return StepReport(batch.step, batch.target_version, metrics, batch, rollouts, result.train)

    def totals(self) -> dict[str, float]:
        """Return seconds, rates and rewards of this process's batches; rewards are means over `reward_window` of them.

        The window is ten batches, or half of a short run: the first and the last have no batch in common.
        """
        seconds = max(self._last - self._began, 1e-9)
        window = max(1, min(_WINDOW, self._steps // 2))
        first, last = self._rewards[:window], self._rewards[-window:]
        return {
            "batches_now": self._steps,
            "reward_window": window,
            "seconds": seconds,
            "steps_per_minute": 60 * self._steps / seconds,
            "rollout_tokens_per_second": self._all_tokens / seconds,
            "reward_first": sum(first) / max(1, len(first)),
            "reward_last": sum(last) / max(1, len(last)),
        }
