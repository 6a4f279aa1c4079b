"""The comparison's table fits 80 columns, keeps its brackets, and shows what it was given."""

import io

import numpy as np
from rich.console import Console

from entr_lab.cli.sim_table import print_comparison
from entr_lab.report.comparison import MethodRuns, compare


def runs(name, mean, *, non_finite=False, synchronous=False):
    values = mean + np.linspace(-0.02, 0.02, 8)
    lost = np.full(8, non_finite)
    shown = {"masked_frac": 0.0123, "removed_entropy": np.nan, "kept_ratio_sq": 411.0, "kl_k3": 0.0123}
    metrics = {key: np.full(8, value) for key, value in shown.items()}
    return MethodRuns(name, np.full(8, np.nan) if non_finite else values, lost, lost, synchronous, metrics)


def printed(*methods):
    stream = io.StringIO()
    print_comparison(compare(methods), Console(file=stream, width=80), title="staleness 30")
    return stream.getvalue()


def test_fits_and_shows_the_numbers():
    text = printed(runs("sync-grpo", 0.9, synchronous=True), runs("entr-outward", 0.9), runs("async-grpo", 0.5))

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert "E[r²]" in text  # brackets are not markup
    row = next(line for line in text.splitlines() if line.startswith(" async-grpo"))
    assert row.split() == ["async-grpo", ".500±.012", "-.400±.000", "-.400±.000", "0/8", "1.2", "–", "411", ".012"]


def test_a_method_without_finite_runs_says_so():
    text = printed(runs("sync-grpo", 0.9, synchronous=True), runs("kpop", 0.5, non_finite=True))

    assert "non-finite" in text
    assert "8/8" in text
    assert "collapsed in 8 of 8 runs" in text
