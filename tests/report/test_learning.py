"""Run records become rows; missing runs of an interrupted comparison too."""

import numpy as np

from entr_lab.report.comparison import compare
from entr_lab.report.learning import method_runs
from entr_lab.sim.outcome import summarise
from tests.report.records import METHODS, record


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
