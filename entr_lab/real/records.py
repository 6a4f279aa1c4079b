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

from entr_lab.errors import ConfigError, check_range

__all__ = ["Completion", "Rollout", "SampleCall", "SamplingSpec"]


@dataclass(frozen=True, slots=True)
class SamplingSpec:
    """How the engine samples one call.

    Args:
        temperature: above 0. The trainer divides its logits by the same number.
        top_p: mass of the nucleus in (0, 1]; 1 keeps the whole vocabulary.
        top_k: number of tokens kept; 0 keeps the whole vocabulary.
        max_tokens: most tokens sampled in one call.
        stop_token_ids: ids that end the completion; the id that was sampled is part of it.
        seed: None draws from the engine's own stream; a number makes the call repeatable at fixed weights.

    Raises:
        RangeError: a number is outside its interval.
        ConfigError: a stop token is negative.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        check_range("temperature", self.temperature, low=0.0, low_open=True, high=100.0)
        check_range("top_p", self.top_p, low=0.0, low_open=True, high=1.0)
        check_range("top_k", self.top_k, low=0)
        check_range("max_tokens", self.max_tokens, low=1)
        if any(token < 0 for token in self.stop_token_ids):
            raise ConfigError(
                f"stop_token_ids must be vocabulary ids, got {self.stop_token_ids}; give ids of the tokenizer."
            )


@dataclass(frozen=True, slots=True)
class SampleCall:
    """One of several completions that are asked for at once.

    Args:
        prompt_ids: token ids.
        sampling: how.
        request_id: to abort it by.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingSpec
    request_id: str | None = None


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
