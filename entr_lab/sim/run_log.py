"""The log of a cohort's runs while they train; `record` turns one run's share into a `RunRecord`."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.diagnostics import METRICS
from entr_lab.sim.outcome import RunRecord, Snapshot
from entr_lab.sim.scenario import Scenario
from entr_lab.tokens import TokenBatch

__all__ = ["RunLog"]

_MOMENTS: Final = (0.1, 0.5, 1.0)
_SNAPSHOT_STRIDE: Final = 3
"""Every third token is sampled: coprime with the eight phases of a turn, so that all of them are sampled alike."""


class RunLog:
    """Metrics `[runs, updates]`, evaluations and snapshots; NaN where a run has not been."""

    def __init__(self, runs: int, scenario: Scenario) -> None:
        self._updates = 0
        self._metrics = {
            name: np.full((runs, scenario.updates), np.nan, dtype=np.float32)
            for name in (*METRICS, "reward", "entropy_mu", "gradient_norm")
        }
        self._moments = {max(0, round(share * scenario.updates) - 1) for share in _MOMENTS}
        self._snapshots: list[list[Snapshot]] = [[] for _ in range(runs)]
        self._evaluations: list[tuple[int, NDArray[np.float32], NDArray[np.float32]]] = []
        self._failed_at = np.full(runs, -1)

    def batch(self, update: int, runs: slice, metrics: dict[str, Tensor], batch: TokenBatch, keep: Tensor) -> None:
        """Log one method's batch `[runs, N]` of one update."""
        for name, values in metrics.items():
            self._metrics[name][runs, update] = values.numpy()
        if update not in self._moments:
            return
        columns = (batch.entropy_mu, batch.log_ratio.detach(), batch.advantage, keep)
        sampled = [column[:, ::_SNAPSHOT_STRIDE].numpy().copy() for column in columns]
        for i, run in enumerate(range(runs.start, runs.stop)):
            self._snapshots[run].append(Snapshot(update, *(column[i] for column in sampled)))

    def step(self, update: int, gradient_norm: Tensor, alive: Tensor) -> None:
        """Log the end of one update of all runs."""
        self._metrics["gradient_norm"][:, update] = gradient_norm.numpy()
        self._failed_at[~alive.numpy() & (self._failed_at < 0)] = update
        self._updates = update + 1

    def evaluation(self, updates: int, reward: NDArray[np.float32], entropy: NDArray[np.float32]) -> None:
        """Log one evaluation of all runs, after `updates` updates."""
        self._evaluations.append((updates, reward, entropy))

    def record(self, run: int, method: str, seed: int) -> RunRecord:
        """Return what run number `run` has left so far."""
        return RunRecord(
            method=method,
            seed=seed,
            updates=self._updates,
            eval_updates=np.array([updates for updates, _, _ in self._evaluations], dtype=np.int64),
            eval_reward=np.array([reward[run] for _, reward, _ in self._evaluations], dtype=np.float32),
            eval_entropy=np.array([entropy[run] for _, _, entropy in self._evaluations], dtype=np.float32),
            metrics={name: values[run, : self._updates].copy() for name, values in self._metrics.items()},
            snapshots=tuple(self._snapshots[run]),
            failed_at=int(self._failed_at[run]) if self._failed_at[run] >= 0 else None,
        )
