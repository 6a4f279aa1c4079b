"""Evaluation while a run goes on: held-out prompts, one rollout each, under the newest weights.

The generators of the run play them beside the training rollouts, beginning once they hold the newest weights. In mode
exact every token is of that version; in the other modes weights may change inside a rollout, as they do in training,
and the result says which versions it saw. Ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from entr_lab.real.reports import Evaluated
from entr_lab.real.station import Play, Station

__all__ = ["Evaluation", "Evaluations"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of one evaluation.

    Args:
        done: batches trained when it began.
        rollouts: that came to an end; NaN rewards are among the failed.
        failed: rollouts that came to nothing.
        metrics: mean reward, its standard error, mean length, and the lowest and highest weight version of a token.
    """

    done: int
    rollouts: int
    failed: int
    metrics: dict[str, float]


@dataclass(slots=True)
class Evaluations:
    """Decides when to evaluate, and on whom.

    Args:
        every: batches between two evaluations; 0 for none. One more is made at the beginning and one at the end.
        play: a held-out trajectory.
        numbers: of the held-out samples, the same in every evaluation.
        tell: is given every result.
    """

    every: int = 0
    play: Play | None = None
    numbers: Sequence[int] = ()
    tell: Callable[[Evaluation], None] = lambda evaluation: None
    _wanted: list[int] = field(default_factory=list)
    _running: dict[str, int] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether nothing is wanted or under way."""
        return not self._wanted and not self._running

    def consider(self, done: int, *, last: bool) -> None:
        """Ask for an evaluation if one is due after `done` batches."""
        if self.every and (last or done % self.every == 0):
            self._wanted.append(done)

    def advance(self, station: Station) -> None:
        """Give a station that has the newest weights the evaluation that waits longest; one at a time, so in order."""
        if self._wanted and self.play is not None and not self._running and station.up_to_date:
            self._running[station.name] = self._wanted.pop(0)
            station.evaluate(self.play, self.numbers)

    def lost(self, worker: str) -> None:
        """Begin again what a dead generator was playing."""
        if worker in self._running:
            self._wanted.insert(0, self._running.pop(worker))

    def settle(self, report: Evaluated) -> None:
        """Tell the result."""
        done = self._running.pop(report.worker)
        judged = [rollout for rollout in report.rollouts if np.isfinite(rollout.reward)]
        rewards = np.array([rollout.reward for rollout in judged])
        count = len(judged)
        metrics = {
            "reward_mean": float(rewards.mean()) if count else float("nan"),
            "reward_standard_error": float(rewards.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan"),
            "response_tokens_mean": float(np.mean([len(r.token_ids) for r in judged])) if count else float("nan"),
            "version_min": float(min((r.weight_version.min() for r in judged), default=float("nan"))),
            "version_max": float(max((r.weight_version.max() for r in judged), default=float("nan"))),
        }
        self.tell(Evaluation(done, count, report.failed + len(report.rollouts) - count, metrics))
