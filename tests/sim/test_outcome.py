"""Summaries of hand-written runs."""

from __future__ import annotations

import numpy as np
import pytest

from entr_lab.diagnostics import METRICS
from entr_lab.sim.outcome import RunRecord, summarise


def run(reward: list[float], *, failed_at: int | None = None, **metrics: list[float]) -> RunRecord:
    count = len(next(iter(metrics.values()), [0.0]))
    columns = {name: np.zeros(count, dtype=np.float32) for name in METRICS}
    columns |= {name: np.array(values, dtype=np.float32) for name, values in metrics.items()}
    entropy = np.linspace(1.0, 0.1, len(reward)).astype(np.float32)
    return RunRecord(
        method="m",
        seed=0,
        updates=count,
        eval_updates=np.arange(len(reward)),
        eval_reward=np.array(reward, dtype=np.float32),
        eval_entropy=entropy,
        metrics=columns,
        failed_at=failed_at,
    )


def test_final_auc_peak_and_end_entropy() -> None:
    got = summarise(run([0.0, 0.5, 0.9, 0.7, 0.9, 0.6, 0.6, 0.5, 0.6, 0.8]))
    assert got.final == pytest.approx(0.7)  # the last two of ten
    assert got.auc == pytest.approx(0.61)
    assert got.peak == pytest.approx(0.8)  # a pair, like `final`
    assert got.end_entropy == pytest.approx(0.15)
    assert not got.collapsed


@pytest.mark.parametrize(("last", "collapsed"), [(0.44, True), (0.46, False)])
def test_collapsed_is_below_half_of_the_own_peak(last: float, collapsed: bool) -> None:
    assert summarise(run([0.1, 0.9, last, last, last])).collapsed is collapsed


def test_failed_run_has_no_final_and_counts_as_collapsed() -> None:
    got = summarise(run([0.5, 0.5], failed_at=3))
    assert np.isnan(got.final)
    assert np.isnan(got.auc)
    assert got.collapsed


def test_means_over_removed_tokens_weigh_updates_by_what_they_removed() -> None:
    got = summarise(
        run(
            [0.5] * 5,
            masked_frac=[0.01, 0.03, 0.0, 0.02],
            unrecorded_frac=[0.0, 0.0, 0.0, 0.02],
            removed_entropy=[1.0, 0.2, np.nan, np.nan],
            removed_outward_frac=[1.0, 0.0, np.nan, np.nan],
            kept_ratio_sq=[1.0, 2.0, 3.0, 2.0],
        )
    )
    assert got.masked_frac == pytest.approx(0.015)
    assert got.removed_entropy == pytest.approx(0.4)
    assert got.removed_outward_frac == pytest.approx(0.25)
    assert got.kept_ratio_sq == pytest.approx(2.0)


def test_nothing_removed_has_no_entropy() -> None:
    assert np.isnan(summarise(run([0.5] * 5, masked_frac=[0.0, 0.0])).removed_entropy)
