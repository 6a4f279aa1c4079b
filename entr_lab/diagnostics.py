"""One definition of every metric, for every rule.

Each name says which tokens it is taken over: `all_` is every recorded trainable token *before* the rule, `kept_` the
tokens that the rule kept, `removed_` the recorded ones that it dropped. Metrics taken after masking alone lie: a low
`kept_ratio_sq` is no evidence of stability, since a symmetric mask can hide growing drift (`all_m2`).

All values are detached, `[...]` per run, float64-accumulated where sums are long. An average over an empty set is
NaN, never 0.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from entr_lab.errors import ShapeError
from entr_lab.tokens import TokenBatch

__all__ = ["METRICS", "diagnose", "masked_sequence_frac"]

METRICS: dict[str, str] = {
    "masked_frac": "share of all trainable tokens that the rule dropped, unrecorded ones included (the paper's ρ_mask)",
    "unrecorded_frac": "share of trainable tokens whose log μ or H is not finite",
    "removed_entropy": "mean behaviour entropy of the removed tokens, nats",
    "removed_low_entropy_frac": "share of the removed tokens at H < 0.1 nats",
    "removed_outward_frac": "share of the removed tokens with A·δ > 0",
    "removed_inward_frac": "share of the removed tokens with A·δ ≤ 0; near one half with growing all_m2, a symmetric "
    "mask is hiding drift",
    "all_m2": "mean δ² before the rule, nats²",
    "all_abs": "mean |δ| before the rule, nats",
    "all_ratio_sq": "E[r²] before the rule; 1 + χ²(π‖μ) under an exact μ",
    "all_ratio_dev": "mean |r − 1| before the rule",
    "all_chi2": "E[r²] − 1 before the rule",
    "all_kl_k1": "mean of −δ: k1 estimate of KL(μ‖π), nats; a token's value may be negative",
    "all_kl_k3": "mean of e^δ − 1 − δ: k3 estimate of KL(μ‖π), nats; non-negative token by token",
    "all_ess_frac": "(Σr)²/(n·Σr²) before the rule",
    "kept_m2": "mean δ² of kept tokens, nats²",
    "kept_ratio_sq": "E[r²] of kept tokens",
    "kept_ratio_dev": "mean |r − 1| of kept tokens",
    "kept_kl_k3": "mean of e^δ − 1 − δ over kept tokens, nats: the accepted part only, not a bound on the KL",
    "kept_ess_frac": "(Σr)²/(n·Σr²) of kept tokens",
    "weight_sq": "E[w²] of kept tokens, w the weight that multiplies A·∇log π (truncation included)",
    "weight_mean": "mean w of kept tokens",
}
"""Every metric of `diagnose`, with its meaning."""


def diagnose(batch: TokenBatch, keep: Tensor, weight: Tensor | None = None) -> dict[str, Tensor]:
    """Return every metric of `METRICS` for one decision.

    Args:
        batch: the tokens, before the rule.
        keep: `[..., N]` bool, the decision.
        weight: `[..., N]` total weight f·r of the loss; the two `weight_` metrics are left out without it.

    Raises:
        ShapeError: `keep` or `weight` does not have the batch's shape.
    """
    for name, column in (("keep", keep), ("weight", weight)):
        if column is not None and column.shape != batch.logp_pi.shape:
            raise ShapeError(f"{name} must be {list(batch.logp_pi.shape)}, got {list(column.shape)}.")
    batch = batch.detach()
    valid, n = batch.valid, batch.n_tokens
    recorded = valid & batch.log_ratio.isfinite()
    removed = recorded & ~keep
    log_ratio = batch.log_ratio.double().masked_fill_(~recorded, 0.0)
    outward = log_ratio.sign() * batch.advantage.sign() > 0
    n_recorded, n_removed = recorded.sum(-1), removed.sum(-1)
    metrics = {
        "masked_frac": 1.0 - keep.sum(-1).double() / n,
        "unrecorded_frac": 1.0 - valid.sum(-1).double() / n,
        "removed_entropy": batch.entropy_mu.double().masked_fill(~removed, 0.0).sum(-1) / n_removed,
        "removed_low_entropy_frac": (removed & (batch.entropy_mu < 0.1)).sum(-1).double() / n_removed,
        "removed_outward_frac": (removed & outward).sum(-1).double() / n_removed,
        "removed_inward_frac": (removed & ~outward).sum(-1).double() / n_removed,
        "all_abs": log_ratio.abs().sum(-1) / n_recorded,
        "all_kl_k1": -log_ratio.sum(-1) / n_recorded,
        **_ratio_metrics("all", log_ratio, recorded),
        **_ratio_metrics("kept", log_ratio.masked_fill(~keep, 0.0), keep & recorded),
    }
    metrics["all_chi2"] = metrics["all_ratio_sq"] - 1.0
    if weight is not None:
        n_kept = keep.sum(-1)
        factor = weight.double().masked_fill(~keep, 0.0)
        metrics["weight_sq"] = torch.linalg.vecdot(factor, factor) / n_kept
        metrics["weight_mean"] = factor.sum(-1) / n_kept
    return {name: metrics[name] for name in METRICS if name in metrics}


def masked_sequence_frac(batch: TokenBatch, keep: Tensor) -> Tensor:
    """Return `[...]`, the share of sequences with at least one dropped token (the paper's Fig. 11a)."""
    rows = zip(batch.sequence.reshape(-1, batch.n_tokens), keep.reshape(-1, batch.n_tokens), strict=True)
    shares = [len(torch.unique(sequence[~kept])) / len(torch.unique(sequence)) for sequence, kept in rows]
    return torch.tensor(shares, dtype=torch.float64).view(keep.shape[:-1])


def _ratio_metrics(prefix: str, log_ratio: Tensor, where: Tensor) -> dict[str, Tensor]:
    """Return the metrics of r = e^δ over one set; δ is 0 outside it. expm1 keeps the digits of small δ.

    Of a token outside, δ, r − 1 and k3 are 0, so that sums need no mask; r² is summed as 1 + (r² − 1).
    """
    count = where.sum(-1)
    excess = log_ratio.expm1()
    # Relative to the largest ratio, so that one token at e^9999 (a log μ that an engine clamps) gives 1/n, not ∞/∞.
    relative = log_ratio.masked_fill(~where, -inf)
    relative = (relative - relative.amax(-1, keepdim=True)).exp_()
    return {
        f"{prefix}_m2": torch.linalg.vecdot(log_ratio, log_ratio) / count,
        f"{prefix}_ratio_sq": 1.0 + (excess * (excess + 2.0)).sum(-1) / count,
        f"{prefix}_ratio_dev": excess.abs().sum(-1) / count,
        f"{prefix}_kl_k3": (excess - log_ratio).sum(-1) / count,
        f"{prefix}_ess_frac": relative.sum(-1).square() / (torch.linalg.vecdot(relative, relative) * count),
    }
