"""The log keeps each run's numbers apart and in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from entr_lab.sim.run_log import RunLog
from entr_lab.tokens import TokenBatch
from tests.sim.small import SMALL


def batch() -> TokenBatch:
    size, zeros = (2, 6), torch.zeros(2, 6, dtype=torch.int64)
    return TokenBatch(
        logp_pi=torch.full(size, -1.0).requires_grad_(),
        logp_mu=torch.arange(12.0).view(size) * -0.1,
        entropy_mu=torch.arange(12.0).view(size),
        advantage=torch.ones(size),
        sequence=zeros,
        group=zeros,
        weight_version=zeros,
        target_version=0,
    )


def test_runs_stay_apart_and_unfinished_updates_are_cut() -> None:
    log = RunLog(4, replace(SMALL, updates=10))
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 3] = False
    log.evaluation(0, np.arange(4, dtype=np.float32), np.ones(4, dtype=np.float32))
    for update in range(3):
        for first in (0, 2):
            value = torch.tensor([first + 0.5, first + 1.5]) + 10 * update
            log.batch(update, slice(first, first + 2), {"reward": value}, batch(), keep)
        log.step(update, torch.arange(4.0), torch.tensor([True, update < 1, True, True]))
    record = log.record(3, "m", 17)
    assert (record.method, record.seed, record.updates, record.failed_at) == ("m", 17, 3, None)
    assert record.metrics["reward"].tolist() == [3.5, 13.5, 23.5]
    assert record.metrics["gradient_norm"].tolist() == [3.0, 3.0, 3.0]
    assert np.isnan(record.metrics["masked_frac"]).all()
    assert record.eval_reward.tolist() == [3.0]
    assert log.record(1, "m", 0).failed_at == 1, "the first bad update, not the last"
    assert [snapshot.update for snapshot in record.snapshots] == [0], "moments: 10 %, 50 %, 100 % of ten updates"
    snapshot = record.snapshots[0]
    assert snapshot.entropy.tolist() == [6.0, 9.0]
    np.testing.assert_allclose(snapshot.log_ratio, [-1 + 0.6, -1 + 0.9], rtol=1e-5)
    assert snapshot.keep.tolist() == [True, False]
