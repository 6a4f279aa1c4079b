"""Curves: smoothing against a naive loop, and that NaN and single seeds still draw."""

import numpy as np
import pytest

from entr_lab.report.curves import Curve, plot_curves, smooth


def naive_smooth(row, width):
    means = []
    for i in range(len(row)):
        window = row[max(0, i - width + 1) : i + 1]
        window = window[np.isfinite(window)]
        means.append(window.mean() if len(window) else np.nan)
    return np.array(means)


@pytest.mark.parametrize("width", [1, 3, 10, 50])
def test_smoothing_is_the_running_mean_without_nan(width):
    rng = np.random.default_rng(4)
    values = rng.normal(size=(3, 30))
    values[rng.random((3, 30)) < 0.3] = np.nan

    smoothed = smooth(values, width)

    np.testing.assert_allclose(smoothed, [naive_smooth(row, width) for row in values], atol=1e-12)


def test_plots_what_it_is_given_even_if_all_nan(tmp_path):
    x = np.arange(20.0)
    curves = {
        "many": Curve(x, np.random.default_rng(0).random((4, 20))),
        "one": Curve(x, np.ones((1, 20))),
        "none": Curve(x, np.full((2, 20), np.nan)),
    }

    plot_curves(curves, tmp_path / "a.png", title="t", label="l", log_scale=True, unit=100.0)

    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
