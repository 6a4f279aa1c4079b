"""Curves over updates: mean over seeds with a 95 % band, one line a method, one PNG a quantity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

__all__ = ["PALETTE", "Curve", "plot_curves", "smooth"]

PALETTE = ("#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#7b3fa0", "#00798c", "#8d5b2e", "#5c5c5c", "#c13c9c", "#4b5320")
"""Colours in the order of the methods, distinguishable in print and for the common colour-vision deficiencies."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One method's trajectories.

    Args:
        x: `[n]` updates.
        y: `[n_seeds, n]`, NaN where undefined.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]


def smooth(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Return the running mean over `width` updates along the last axis, ignoring NaN; shorter at the start."""
    filled = np.nan_to_num(values, nan=0.0)
    present = np.isfinite(values).astype(np.float64)
    sums, counts = np.cumsum(filled, axis=-1), np.cumsum(present, axis=-1)
    sums[..., width:] -= sums[..., :-width].copy()
    counts[..., width:] -= counts[..., :-width].copy()
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def plot_curves(
    curves: Mapping[str, Curve], path: Path, *, title: str, label: str, log_scale: bool = False, unit: float = 1.0
) -> None:
    """Write one PNG.

    Args:
        curves: by method, in the order of the legend.
        path: file to write.
        title: what the plot shows.
        label: of the y axis, with its unit.
        log_scale: logarithmic y axis.
        unit: factor on y, 100 for percent.
    """
    figure, axis = plt.subplots(figsize=(7.2, 4.2), dpi=130)
    for index, (name, curve) in enumerate(curves.items()):
        colour = PALETTE[index % len(PALETTE)]
        y = curve.y * unit
        count = np.isfinite(y).sum(axis=0)
        mean = np.divide(np.nansum(y, axis=0), count, out=np.full(y.shape[1], np.nan), where=count > 0)
        axis.plot(curve.x, mean, color=colour, label=name, linewidth=1.4)
        if len(y) > 1:
            squares = np.nansum((y - mean) ** 2, axis=0)
            deviation = np.sqrt(np.divide(squares, count - 1, out=np.full_like(squares, np.nan), where=count > 1))
            half = stdtrit(np.maximum(count - 1, 1), 0.975) * deviation / np.sqrt(np.maximum(count, 1))
            axis.fill_between(curve.x, mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
    if log_scale:
        axis.set_yscale("log", nonpositive="mask")
    axis.set_xlabel("updates")
    axis.set_ylabel(label)
    axis.set_title(title, fontsize=10)
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(fontsize=8, frameon=False, ncol=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
