"""The numbers of one update besides those of `entr_lab.diagnostics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from entr_lab.diagnostics import diagnose, masked_sequence_frac
from entr_lab.real.columns import UpdateColumns
from entr_lab.tokens import TokenBatch

__all__ = ["METRIC_DOCS", "summarise"]

METRIC_DOCS: Final[dict[str, str]] = {
    "loss": "mean loss of the optimiser steps",
    "entropy_pi": "mean entropy of the trainer's policy on the batch's tokens, nats",
    "grad_norm": "mean norm of the gradient before the clip",
    "step_skipped": "share of optimiser steps skipped because the gradient was not finite",
    "learning_rate": "of the last optimiser step",
    "update_seconds": "wall time of the update",
    "reward_mean": "mean reward of the batch",
    "reward_std": "standard deviation of the rewards over the batch",
    "zero_variance_frac": "share of groups whose advantages are all zero",
    "tokens": "trainable tokens",
    "response_tokens_mean": "mean tokens of a rollout after its prompt, tool answers included",
    "turns_mean": "mean turns of a rollout",
    "entropy_mu": "mean recorded entropy of the behaviour policy, nats",
    "staleness_mean": "mean of target − weight version over trainable tokens",
    "staleness_max": "its largest value",
    "inter_lag_mean": "mean of target − last version of a rollout",
    "intra_lag_mean": "mean of last − first version of a rollout",
    "masked_sequence_frac": "share of rollouts with at least one dropped token",
}
"""Every metric of an update that `diagnostics.METRICS` does not define."""


def summarise(
    columns: UpdateColumns, passes: Sequence[tuple[TokenBatch, Tensor, Tensor]], target_version: int
) -> dict[str, float]:
    """Return metrics of one batch; those of the rule are means over the optimiser steps of the first epoch.

    Args:
        columns: the batch.
        passes: tokens, mask and weight of each optimiser step of the first epoch.
        target_version: version that the batch started from.
    """
    rollouts = columns.rollouts
    reward = np.array([rollout.reward for rollout in rollouts])
    versions = [rollout.weight_version[rollout.trainable] for rollout in rollouts]
    staleness = target_version - np.concatenate(versions)
    entropy = torch.cat([tokens.entropy_mu for tokens, _, _ in passes]).double()
    entropy = entropy[entropy.isfinite()]
    found = {
        "reward_mean": float(reward.mean()),
        "reward_std": float(reward.std()),
        "zero_variance_frac": columns.zero_variance_frac,
        "tokens": float(len(staleness)),
        "response_tokens_mean": float(np.mean([len(rollout.token_ids) for rollout in rollouts])),
        "turns_mean": float(np.mean([int(rollout.turn.max()) + 1 for rollout in rollouts])),
        "entropy_mu": float(entropy.mean()),
        "staleness_mean": float(staleness.mean()),
        "staleness_max": float(staleness.max()),
        "inter_lag_mean": float(np.mean([target_version - v[-1] for v in versions])),
        "intra_lag_mean": float(np.mean([v[-1] - v[0] for v in versions])),
    }
    rows = [
        {
            "masked_sequence_frac": float(masked_sequence_frac(tokens, keep)),
            **{name: float(value) for name, value in diagnose(tokens, keep, weight).items()},
        }
        for tokens, keep, weight in passes
    ]
    for name in rows[0]:
        values = np.array([row[name] for row in rows])
        known = values[np.isfinite(values)]
        found[name] = float(known.mean()) if len(known) else float("nan")
    return found
