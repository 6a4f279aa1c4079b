"""Hypothesis strategies for the theory: distributions and drifts chosen to break an inequality, not to look natural."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy.special import logsumexp

SIZES = (2, 3, 5, 17, 257, 4096)
KINDS = ("uniform", "one-hot", "two-point", "tiny", "zipf", "dirichlet", "half")


@st.composite
def log_distributions(draw, sizes=SIZES, kinds=KINDS):
    """Normalised log-probabilities `[V]`: one-hot limits, masses of 1e-300, fair halves, heavy tails."""
    V = draw(st.sampled_from(sizes))
    kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "uniform":
        logits = np.zeros(V)
    elif kind == "one-hot":
        logits = np.full(V, -draw(st.floats(1.0, 690.0)))
        logits[rng.integers(V)] = 0.0
    elif kind == "two-point":
        logits = np.full(V, -690.0)
        logits[:2] = [0.0, -draw(st.floats(0.0, 60.0))]
    elif kind == "tiny":
        logits = -rng.uniform(0.0, 690.0, V)
    elif kind == "zipf":
        logits = -draw(st.floats(0.2, 4.0)) * np.log(np.arange(1, V + 1))
    elif kind == "half":
        logits = np.full(V, -np.log(max(V - 1, 1)))
        logits[0] = 0.0
    else:
        logits = np.log(rng.dirichlet(np.full(V, draw(st.floats(0.05, 3.0)))) + 1e-300)
    return logits - logsumexp(logits)


@st.composite
def drifts(draw, V, radius=40.0):
    """A logit drift `[V]`: Gaussian, a vertex {0, R}^V, one spike, nearly zero, or a heavy tail."""
    kind = draw(st.sampled_from(("gauss", "vertex", "spike", "small", "cauchy")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.floats(1e-3, radius))
    if kind == "gauss":
        return scale * rng.standard_normal(V) / 4.0
    if kind == "vertex":
        return scale * (rng.random(V) < draw(st.floats(0.05, 0.95)))
    if kind == "spike":
        drift = np.zeros(V)
        drift[rng.integers(V)] = scale * draw(st.sampled_from((-1.0, 1.0)))
        return drift
    if kind == "small":
        return 1e-7 * rng.standard_normal(V)
    return np.clip(scale * rng.standard_cauchy(V) / 10.0, -radius, radius)


@st.composite
def positions(draw, sizes=SIZES, radius=40.0):
    """A pair (log μ, Δ) over one vocabulary."""
    logp = draw(log_distributions(sizes))
    return logp, draw(drifts(len(logp), radius))
