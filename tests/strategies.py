"""Hypothesis strategies: token batches made of ordinary and of nasty tokens.

Extend this file before adding a rule. A batch is drawn token by token, so that a failure shrinks to the one token
that causes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from entr_lab.tokens import TokenBatch

TARGET_VERSION = 30
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

entropies = st.one_of(
    st.just(0.0), st.sampled_from((1e-9, 4e-4, 0.01, 0.1, math.log(2.0), 1.0)), st.floats(0.0, 4.0, width=32)
)
"""H: exactly 0, near 0, at values where rules meet, and anything up to 4 nats."""

log_probs = st.one_of(
    st.sampled_from((0.0, -1e-9, -3e-8, -1e-6, -1e-3)), st.floats(-2.0, 0.0, width=32), st.floats(-80.0, 0.0, width=32)
)
"""log p: probabilities that are 1 or round to 1 in float32, ordinary ones, and very rare tokens."""

log_ratios = st.one_of(
    st.just(0.0),
    st.sampled_from((0.1, -0.1, 1.0, -1.0, 1.2, -1.2, 100.0, -100.0)),
    st.floats(-0.5, 0.5, width=32),
    st.floats(-30.0, 30.0, width=32),
)
"""δ: on-policy, at the boundaries of the default rules, small, large, beyond what float32 exponentiates."""

advantages = st.sampled_from((0.0, 1.0, -1.0, 0.37, -2.5, 1e-6))
not_finite = st.sampled_from((math.nan, math.inf, -math.inf))


@st.composite
def tokens(draw: st.DrawFn, *, spoiled: bool = True) -> dict[str, float]:
    """One token as a row of floats; about one in eight has a record that is not finite."""
    row = {
        "logp_mu": draw(log_probs),
        "entropy_mu": draw(entropies),
        "advantage": draw(advantages),
        "collision_mu": draw(st.floats(0.0, 1.0, width=32)),
    }
    row["logp_pi"] = row["logp_mu"] + draw(log_ratios)
    if spoiled and draw(st.integers(0, 7)) == 0:
        row[draw(st.sampled_from(("logp_mu", "entropy_mu", "logp_pi")))] = draw(not_finite)
    return row


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    max_tokens: int = 12,
    spoiled: bool = True,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    max_runs: int = 0,
) -> TokenBatch:
    """A batch of ragged sequences; with `max_runs`, perhaps with a leading axis of runs."""
    n_tokens = draw(st.integers(1, max_tokens))
    n_runs = draw(st.integers(0, max_runs))
    rows = [draw(_run(n_tokens, spoiled)) for _ in range(max(n_runs, 1))]
    columns = rows[0] if n_runs == 0 else {name: [run[name] for run in rows] for name in rows[0]}
    return build(columns, dtype=draw(st.sampled_from(tuple(dtypes))))


@st.composite
def _run(draw: st.DrawFn, n_tokens: int, spoiled: bool) -> dict[str, list[Any]]:
    rows = [draw(tokens(spoiled=spoiled)) for _ in range(n_tokens)]
    if n_tokens > 2 and draw(st.booleans()):
        rows[-1] = dict(rows[0])  # an exact tie
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
    lengths = draw(st.lists(st.integers(1, 4), min_size=n_tokens, max_size=n_tokens))
    columns["sequence"] = [index for index, length in enumerate(lengths) for _ in range(length)][:n_tokens]
    columns["weight_version"] = draw(st.lists(st.integers(0, TARGET_VERSION), min_size=n_tokens, max_size=n_tokens))
    return columns


def build(columns: dict[str, Any], *, dtype: torch.dtype = torch.float32, **changes: Any) -> TokenBatch:
    """Build a batch from lists; what is left out is harmless: H = 1, A = 1, one sequence, fresh versions."""
    values = {**columns, **changes}
    mu = torch.as_tensor(values["logp_mu"], dtype=torch.float64)

    def floats(name: str, default: float | None = None) -> Tensor | None:
        if name not in values and default is None:
            return None
        return torch.as_tensor(values.get(name, default), dtype=torch.float64).expand(mu.shape).to(dtype)

    def integers(name: str, default: int) -> Tensor:
        return torch.as_tensor(values.get(name, default), dtype=torch.int64).expand(mu.shape).contiguous()

    sequence = integers("sequence", 0)
    return TokenBatch(
        logp_pi=floats("logp_pi"),
        logp_mu=mu.to(dtype),
        entropy_mu=floats("entropy_mu", 1.0),
        advantage=floats("advantage", 1.0),
        sequence=sequence,
        group=integers("group", 0) if "group" in values else sequence // 2,
        weight_version=integers("weight_version", TARGET_VERSION),
        target_version=values.get("target_version", TARGET_VERSION),
        logp_prox=floats("logp_prox"),
        collision_mu=floats("collision_mu"),
    )


def from_ratios(log_ratio: Sequence[float], **columns: Any) -> TokenBatch:
    """Build a float64 batch from δ at log μ = −1, so that δ is what the rules see up to one rounding."""
    mu = columns.pop("logp_mu", [-1.0] * len(log_ratio))
    pi = [left + right for left, right in zip(mu, log_ratio, strict=True)]
    dtype = columns.pop("dtype", torch.float64)
    return build({"logp_mu": mu, "logp_pi": pi, **columns}, dtype=dtype)


def with_gradient(batch: TokenBatch) -> TokenBatch:
    """Return the batch with a fresh leaf as `logp_pi`."""
    return replace(batch, logp_pi=batch.logp_pi.detach().clone().requires_grad_())
