"""Four figures: φ and its ends, the envelope, the boundaries in probability space, error against threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from entr_lab.theory.boundary import discrepancy_interval, entr_boundary, keep_kpop
from entr_lab.theory.dispersion import entropy, gini_simpson
from entr_lab.theory.divergence import normalise, tilt, variance
from entr_lab.theory.envelope import LN2, simple_envelope, variance_envelope
from entr_lab.theory.masking import EPS, WEIGHTS, enumerate_tokens
from entr_lab.theory.scalars import Array, binary_entropy, phi
from entr_lab.theory.thresholds import sweep

__all__ = ["draw_all"]

_SWEPT = ("fixed", "icepop", "kpop", "entr", "entr-outward", "truncated")


def draw_all(folder: Path, *, seed: int = 0) -> list[Path]:
    """Write the figures as PNG into an existing folder and return their paths."""
    figures = {
        "phi": _phi(),
        "envelope": _envelope(seed),
        "boundaries": _boundaries(),
        "error_by_threshold": _error(seed),
    }
    paths = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130, bbox_inches="tight")
        paths.append(path)
    return paths


def _axes(title: str, x: str, y: str) -> tuple[Figure, Any]:
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.0, 4.0))
        axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def _phi() -> Figure:
    figure, axes = _axes("A2: KL(μ‖π)/E δ² lies between φ(−M) and φ(M)", "largest |δ|, M (nats)", "φ")
    M = np.linspace(0.0, 4.0, 200)
    axes.fill_between(M, phi(-M), phi(M), alpha=0.25, label="KL / E δ²")
    axes.plot(M, phi(M), label="φ(M)")
    axes.plot(M, phi(-M), label="φ(−M)")
    axes.axhline(0.5, ls=":", c="k", lw=1)
    axes.legend()
    return figure


def _envelope(seed: int) -> Figure:
    figure, axes = _axes("B2, B3: dispersion and entropy", "H (nats)", "Var(δ)/R², G")
    rng = np.random.default_rng(seed)
    logp = normalise(-rng.exponential(rng.uniform(0.2, 6.0, (3000, 1)), (3000, 8)))
    logp[:1500, 2:] = -np.inf
    logp = normalise(logp)
    drift = (rng.random((3000, 8)) < 0.5).astype(float)
    drift[:, 0], drift[:, 1] = 1.0, 0.0
    H = entropy(logp)
    axes.plot(H, variance(logp, drift), ".", ms=2, c="0.6", label="sampled: Var(δ)/R²")
    axes.plot(H, gini_simpson(logp), ".", ms=2, c="tab:green", alpha=0.5, label="sampled: G = 1 − Σμ²")
    h = np.linspace(0.0, H.max(), 300)
    axes.plot(h, variance_envelope(h), c="tab:red", label="v(H), sharp")
    axes.plot(h, simple_envelope(h), "--", c="tab:red", label="¼ min(1, H/ln 2)")
    axes.plot(h, h / (2 * LN2), "--", c="tab:green", label="H/(2 ln 2) ≥ G")
    axes.set_ylim(0.0, 1.0)
    axes.legend(fontsize=7)
    return figure


def _kpop_end(q: Array, threshold: float) -> Array:
    """Largest recorded probability above q that KPop keeps, by bisection on its logarithm."""
    low, high = np.log(q), np.zeros_like(q)
    for _ in range(60):
        middle = 0.5 * (low + high)
        keep = keep_kpop(middle, np.log(q), threshold=threshold)
        low, high = np.where(keep, middle, low), np.where(keep, high, middle)
    return np.asarray(np.exp(low))


def _boundaries() -> Figure:
    figure, axes = _axes(
        "C3: discrepancy that triggers a mask (record above the target)",
        "probability q of the token under the target",
        "e = μ(y) − q",
    )
    q = np.concatenate([np.geomspace(1e-4, 0.1, 200), np.linspace(0.1, 1.0, 400)[1:]])
    for label, b in (
        ("ENTR along the binary envelope, τ = 1", entr_boundary(binary_entropy(q), tau=1.0, eps=EPS)),
        ("ENTR at H = 1.5", np.full_like(q, entr_boundary(1.5, tau=1.0, eps=EPS))),
        ("fixed, |δ| ≤ 1", np.ones_like(q)),
        ("IcePop, ratio ≥ ½", np.full_like(q, LN2)),
    ):
        axes.plot(q, discrepancy_interval(q, b)[1], label=label)
    axes.plot(q, _kpop_end(q, 0.1) - q, label="KPop, φ = 0.1")
    axes.plot(q, 1.0 - q, ":", c="k", lw=1, label="largest possible, 1 − q")
    axes.set(xscale="log", yscale="log", ylim=(1e-4, 3.0))
    axes.legend(fontsize=7)
    return figure


def _error(seed: int) -> Figure:
    figure, axes = _axes(
        "E3: one-step error against threshold (ranks estimators, not rules in a loop)",
        "threshold / default",
        "mean squared error, N = 256",
    )
    rng = np.random.default_rng(seed)
    logp = normalise(2 * rng.standard_normal((200, 64)))
    delta, _ = tilt(logp, rng.standard_normal((200, 64)))
    tokens = enumerate_tokens(logp, logp + delta, rng.choice([-1.0, 1.0], (200, 64)))
    factors = np.geomspace(0.05, 20.0, 15)
    for rule in _SWEPT:
        curve = sweep(tokens, rule, list(factors * WEIGHTS[rule].default), 256)
        axes.plot(factors, curve.error, label=rule)
    axes.set(xscale="log", yscale="log")
    axes.legend(fontsize=7)
    return figure
