"""What the trainer says of a few fixed prompts, in the form that travels with the weights.

The canary prompts end at positions where the next token is not yet known; the reference holds the trainer's own
distribution there, at temperature 1: the log-probs of its likeliest tokens, and entropy and Σπ² over the full
vocabulary. An engine that holds the same weights must return the same numbers for the token that it picks. Ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entr_lab.errors import ConfigError, check_range

__all__ = ["CanaryReference", "LogitsFn", "canary_prompts", "canary_reference", "model_logits"]

LogitsFn = Callable[[Sequence[int]], Tensor]
"""Token ids `[n]` → the trainer's logits `[n, V]`, float32, undivided."""

_TOP: Final = 16
"""Tokens whose log-prob the reference holds; a greedy engine that picks another one is wrong, not unlucky."""


@dataclass(frozen=True, slots=True)
class CanaryReference:
    """The trainer's next-token distribution after each of K prompts.

    Args:
        prompts: K tuples of token ids.
        top_ids: `[K, M]` int64 likeliest tokens, likeliest first.
        top_logp: `[K, M]` float32.
        entropy: `[K]` float32, nats.
        collision: `[K]` float32, Σ π².
    """

    prompts: tuple[tuple[int, ...], ...]
    top_ids: NDArray[np.int64]
    top_logp: NDArray[np.float32]
    entropy: NDArray[np.float32]
    collision: NDArray[np.float32]


def canary_prompts(
    vocabulary: int, *, count: int = 16, length: int = 160, seed: int = 0
) -> tuple[tuple[int, ...], ...]:
    """Return fixed random prompts of lengths from `length`/`count` to `length`.

    Args:
        vocabulary: ids are drawn below it.
        count: number of prompts.
        length: of the longest; 160 reaches past a KV block of 128 tokens, so a stale prefix cache is seen.
        seed: of the draw.

    Raises:
        RangeError: a number is below 1.
    """
    check_range("vocabulary", vocabulary, low=2)
    check_range("count", count, low=1)
    check_range("length", length, low=count)
    random = np.random.default_rng(seed)
    lengths = [max(1, length * (place + 1) // count) for place in range(count)]
    return tuple(tuple(int(token) for token in random.integers(0, vocabulary, n)) for n in lengths)


@torch.no_grad()
def canary_reference(logits: LogitsFn, prompts: Sequence[Sequence[int]]) -> CanaryReference:
    """Return what the trainer says of `prompts` under the weights that it holds now."""
    rows = [logits(prompt)[-1].float().log_softmax(-1).cpu() for prompt in prompts]
    logp = torch.stack(rows)
    top = logp.topk(min(_TOP, logp.shape[-1]), dim=-1)
    probs = logp.exp()
    return CanaryReference(
        tuple(tuple(int(token) for token in prompt) for prompt in prompts),
        top.indices.numpy(),
        top.values.numpy(),
        torch.special.entr(probs).sum(-1).numpy(),
        probs.square().sum(-1).numpy(),
    )


def model_logits(model: nn.Module, state: dict[str, Tensor] | None = None) -> LogitsFn:
    """Return the logits of a Hugging Face causal language model, by full recomputation.

    Args:
        model: called as `model(input_ids=…, use_cache=False).logits`.
        state: weights to use instead of the model's own, by name.

    Raises:
        ConfigError: `state` names a tensor that the model does not have.
    """
    unknown = sorted(set(state or ()) - set(model.state_dict()))
    if unknown:
        raise ConfigError(f"the model has no tensor {unknown[0]}; give weights under the model's own names.")
    device = next(model.parameters()).device

    @torch.no_grad()
    def logits(ids: Sequence[int]) -> Tensor:
        row = torch.as_tensor([list(ids)], dtype=torch.long, device=device)
        arguments: dict[str, Any] = {"input_ids": row, "use_cache": False}
        output = model(**arguments) if state is None else torch.func.functional_call(model, state, (), arguments)
        found: Tensor = output.logits[0].float()
        return found

    return logits
