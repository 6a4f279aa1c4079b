"""The (H, |δ|) plane of a batch with the boundaries of the rules: the view of the paper's Fig. 9."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from entr_lab.report.curves import PALETTE
from entr_lab.rules import BoundedRule
from entr_lab.sim.outcome import Snapshot
from entr_lab.tokens import TokenBatch

__all__ = ["boundary_curve", "plot_plane"]

_FLOOR = 1e-4
"""nats; smaller |δ| and H are drawn here, so that a logarithmic axis shows all tokens."""


def boundary_curve(rule: BoundedRule, entropy: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (−low, high), the largest kept |δ| below and above zero at each entropy, `[n]`."""
    grid = torch.from_numpy(entropy)
    zeros, ids = torch.zeros_like(grid), torch.zeros(len(grid), dtype=torch.int64)
    batch = TokenBatch(
        logp_pi=zeros,
        logp_mu=zeros,
        entropy_mu=grid,
        advantage=zeros,
        sequence=ids,
        group=ids,
        weight_version=ids,
        target_version=0,
    )
    low, high = rule.bounds(batch)
    return -np.broadcast_to(np.asarray(low), entropy.shape), np.broadcast_to(np.asarray(high), entropy.shape)


def plot_plane(snapshots: Sequence[Snapshot], rules: Sequence[BoundedRule], path: Path, *, title: str) -> None:
    """Write one PNG: a panel per snapshot, kept and removed tokens, and the boundary of each rule that has one in H.

    Args:
        snapshots: samples of one method's batches at a few moments.
        rules: rules whose boundary is a function of H; drawn above zero solid, below dashed where it differs.
        path: file to write.
        title: over all panels.
    """
    figure, axes = plt.subplots(
        1, len(snapshots), figsize=(4.2 * len(snapshots), 4.2), dpi=130, sharey=True, squeeze=False
    )
    entropy = np.geomspace(_FLOOR, 3.5, 200)
    for axis, snapshot in zip(axes[0], snapshots, strict=True):
        _scatter(axis, snapshot)
        for index, rule in enumerate(rules):
            below, above = boundary_curve(rule, entropy)
            if not np.isfinite(above).all():
                continue
            colour = PALETTE[index % len(PALETTE)]
            axis.plot(entropy, above, color=colour, linewidth=1.3, label=rule.name)
            if not np.allclose(below, above):
                axis.plot(entropy, below, color=colour, linewidth=1.0, linestyle="--")
        axis.set(
            xscale="log", yscale="log", xlim=(_FLOOR, 4.0), ylim=(_FLOOR, 30.0), xlabel="behaviour entropy H, nats"
        )
        axis.set_title(f"update {snapshot.update}", fontsize=9)
        axis.grid(alpha=0.25, linewidth=0.5)
    axes[0][0].set_ylabel("|δ|, nats")
    axes[0][0].legend(fontsize=7, frameon=False, loc="lower right")
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _scatter(axis: Axes, snapshot: Snapshot) -> None:
    x = np.maximum(snapshot.entropy, _FLOOR)
    y = np.maximum(np.abs(snapshot.log_ratio), _FLOOR)
    for chosen, colour, size, label in (
        (snapshot.keep, "#9a9a9a", 2, "kept"),
        (~snapshot.keep, "#111111", 6, "removed"),
    ):
        axis.scatter(x[chosen], y[chosen], s=size, color=colour, linewidths=0, label=label)
