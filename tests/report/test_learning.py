"""Run records become rows, Parquet and plots; missing and shortened runs of an interrupted comparison too."""

import numpy as np
import pyarrow.parquet as pq

from entr_lab.diagnostics import METRICS
from entr_lab.objective import get_method
from entr_lab.report.comparison import compare
from entr_lab.report.learning import method_runs, write_curves, write_metrics, write_planes
from entr_lab.sim.outcome import RunRecord, summarise

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


def test_rows_follow_the_order_of_methods_and_seeds():
    runs = [record("entr", 7, reward=0.5), record("sync-grpo", 8, reward=0.8), record("sync-grpo", 7, reward=0.9)]

    sync, entr = method_runs(METHODS, [7, 8], runs)

    assert sync.synchronous
    np.testing.assert_allclose(sync.final, [0.9, 0.8])
    np.testing.assert_allclose(entr.final, [0.5, np.nan])
    assert entr.metrics["masked_frac"][0] == summarise(runs[0]).masked_frac
    assert compare([sync, entr]).rows[1].to_sync.n == 1


def test_a_failed_run_counts_as_non_finite():
    (_, entr) = method_runs(METHODS, [1], [record("sync-grpo", 1), record("entr", 1, failed_at=4)])

    assert entr.non_finite.tolist() == [True]
    assert np.isnan(entr.final[0])


def test_writes_tables_and_plots_of_unequal_runs(tmp_path):
    runs = [record("sync-grpo", 1), record("sync-grpo", 2, updates=20), record("entr", 1)]

    write_metrics(runs, tmp_path)
    write_curves(METHODS, runs, tmp_path)
    write_planes(METHODS, runs, tmp_path)

    assert pq.read_table(tmp_path / "updates.parquet").num_rows == 80
    evaluations = pq.read_table(tmp_path / "evaluations.parquet").to_pydict()
    assert evaluations["seed"].count(2) == 5
    assert (tmp_path / "reward.png").exists()
    assert not list(tmp_path.glob("plane-*"))  # no snapshots were taken
