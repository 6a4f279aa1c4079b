"""Verdicts on constructed outcomes, where the right sentence is known."""

import numpy as np
import pytest

from entr_lab.errors import ShapeError
from entr_lab.report.comparison import MethodRuns, Verdict, compare


def runs(name, final, *, collapsed=None, non_finite=None, synchronous=False):
    final = np.asarray(final, dtype=float)
    none = np.zeros(len(final), dtype=bool)
    return MethodRuns(
        name=name,
        final=final,
        collapsed=none if collapsed is None else np.asarray(collapsed),
        non_finite=none if non_finite is None else np.asarray(non_finite),
        synchronous=synchronous,
        metrics={"masked_frac": final / 100},
    )


NOISE = np.array([0.01, -0.02, 0.015, -0.005])
SYNC = runs("sync-grpo", 0.9 + NOISE, synchronous=True)


def row(comparison, name):
    return next(row for row in comparison.rows if row.name == name)


def test_a_method_equal_within_noise_survives_and_is_called_not_distinguishable():
    comparison = compare([SYNC, runs("entr", 0.9 + NOISE[::-1])])

    entr = row(comparison, "entr")
    assert entr.verdict is Verdict.SURVIVES
    assert "not distinguishable from sync-grpo" in entr.sentence
    assert comparison.best == "entr"
    assert entr.to_best is None


def test_a_clear_loss_is_degraded_and_carries_its_difference():
    comparison = compare([SYNC, runs("async-grpo", 0.6 + NOISE)])

    lost = row(comparison, "async-grpo")
    assert lost.verdict is Verdict.DEGRADED
    assert lost.to_sync.mean == pytest.approx(-0.3)
    assert "-0.300" in lost.sentence
    assert "not distinguishable" not in lost.sentence


def test_half_of_the_runs_lost_is_a_collapse_and_non_finite_runs_count():
    comparison = compare(
        [
            SYNC,
            runs(
                "kpop",
                [0.9, 0.9, 0.1, np.nan],
                collapsed=[False, False, True, False],
                non_finite=[False, False, False, True],
            ),
        ]
    )

    lost = row(comparison, "kpop")
    assert lost.verdict is Verdict.COLLAPSED
    assert (lost.n_collapsed, lost.n_non_finite, lost.n_runs) == (2, 1, 4)
    assert "collapsed in 2 of 4 runs" in lost.sentence
    assert "non-finite" in lost.sentence


def test_a_single_collapse_among_many_is_said_and_does_not_decide():
    final = np.array([0.9] * 7 + [0.2])
    sync = runs("sync-grpo", [0.91] * 8, synchronous=True)

    lost = row(compare([sync, runs("m2po", final, collapsed=[False] * 7 + [True])]), "m2po")

    assert lost.verdict is Verdict.DEGRADED or lost.verdict is Verdict.SURVIVES
    assert "1 of 8 runs collapsed" in lost.sentence


def test_a_small_but_certain_cost_survives_and_is_named():
    sync = runs("sync-grpo", 0.90 + NOISE, synchronous=True)

    near = row(compare([sync, runs("entr", 0.87 + NOISE)]), "entr")

    assert near.verdict is Verdict.SURVIVES
    assert "-0.030" in near.sentence


def test_without_sync_the_best_method_is_the_reference():
    comparison = compare([runs("entr", 0.9 + NOISE), runs("async-grpo", 0.5 + NOISE)])

    assert comparison.sync is None
    assert comparison.best == "entr"
    assert row(comparison, "async-grpo").verdict is Verdict.DEGRADED
    assert row(comparison, "async-grpo").to_sync is None


def test_one_seed_gives_no_interval_and_says_so():
    comparison = compare([runs("sync-grpo", [0.9], synchronous=True), runs("entr", [0.88])])

    assert "no interval" in row(comparison, "entr").sentence


def test_refuses_unequal_or_empty_input():
    with pytest.raises(ShapeError, match="at least one"):
        compare([])
    with pytest.raises(ShapeError, match="same seeds"):
        compare([SYNC, runs("entr", [0.9])])
