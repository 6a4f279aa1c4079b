"""Run records made up for the report's tests."""

import numpy as np

from entr_lab.diagnostics import METRICS
from entr_lab.objective import get_method
from entr_lab.sim.outcome import RunRecord

METHODS = [get_method("sync-grpo"), get_method("entr")]


def record(method, seed, updates=30, reward=0.9, failed_at=None):
    rng = np.random.default_rng(seed)
    evaluations = np.arange(0, updates + 1, 5)
    names = (*METRICS, "reward", "entropy_mu", "gradient_norm")
    return RunRecord(
        method=method,
        seed=seed,
        updates=updates,
        eval_updates=evaluations,
        eval_reward=np.full(len(evaluations), reward, dtype=np.float32),
        eval_entropy=np.full(len(evaluations), 0.2, dtype=np.float32),
        metrics={name: rng.random(updates).astype(np.float32) for name in names},
        failed_at=failed_at,
    )
