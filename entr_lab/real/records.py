"""What the generator returns and what the trainer consumes: one rollout, token in, token out.

Arrays are numpy, one entry a token, in the order in which the model saw them after the prompt. Context tokens (a
tool's answer) are rows with `trainable` False and NaN in the behaviour columns; they are never trained on and never
re-tokenised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Completion", "Rollout"]


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine sampled in one call.

    Args:
        token_ids: `[n]` int32, the stop token included if it was sampled.
        logp_mu: `[n]` float32 log-prob of each token under the distribution that was sampled from.
        entropy_mu: `[n]` float32 entropy of that distribution over the full vocabulary, nats.
        collision_mu: `[n]` float32 Σ μ² of that distribution.
        weight_version: `[n]` int64 version of the weights that produced each token.
        finish_reason: `stop`, `length` or `abort`.
    """

    token_ids: NDArray[np.int32]
    logp_mu: NDArray[np.float32]
    entropy_mu: NDArray[np.float32]
    collision_mu: NDArray[np.float32]
    weight_version: NDArray[np.int64]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished trajectory of one prompt.

    Args:
        prompt_ids: `[p]` int32.
        token_ids: `[n]` int32, sampled and context tokens after the prompt.
        trainable: `[n]` bool, True where the policy sampled the token.
        logp_mu, entropy_mu, collision_mu: `[n]` float32, NaN on context tokens.
        weight_version: `[n]` int64; context tokens carry the version of the token before them.
        turn: `[n]` int32 turn of each token, from 0.
        reward: scalar reward of the trajectory.
        sample: what the data set said of the prompt (id, source, ground truth).
        info: what the environment wants logged, plain data.
    """

    prompt_ids: NDArray[np.int32]
    token_ids: NDArray[np.int32]
    trainable: NDArray[np.bool_]
    logp_mu: NDArray[np.float32]
    entropy_mu: NDArray[np.float32]
    collision_mu: NDArray[np.float32]
    weight_version: NDArray[np.int64]
    turn: NDArray[np.int32]
    reward: float
    sample: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
