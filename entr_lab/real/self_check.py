"""The start-up self-check: an engine whose record of its own behaviour is wrong must not be trained on.

`check_behaviour` samples a few completions at a temperature other than 1 and a nucleus below 1, recomputes the
distribution of every position with the trainer's weights, and compares log-prob, entropy and Σμ². An engine that
reports the distribution before temperature or truncation, or of other weights, is off by whole nats there.

`perturbed` weights go through the real update path and are proved before the true ones follow: the rehearsal of a run.
A tensor whose update is lost shows at once, which one small optimiser step would hide in the rounding of a bfloat16
engine. Ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor

from entr_lab.errors import EngineError
from entr_lab.real.canary import LogitsFn
from entr_lab.real.records import Completion, SamplingSpec

__all__ = [
    "CHECK_SAMPLING",
    "BehaviourError",
    "CheckedGenerator",
    "check_behaviour",
    "perturbed",
    "processed_logp",
    "recompute",
]

CHECK_SAMPLING: Final = SamplingSpec(temperature=1.4, top_p=0.9, max_tokens=12)
"""Far from T = 1 and the whole vocabulary, where the wrong distribution looks right."""

_SLACK: Final = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}
"""Probability mass around the edge of the nucleus where rounding decides whether a token is in."""

_MEAN_BOUND: Final = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.01}
"""Largest mean difference; one token of a bfloat16 engine may be off by 0.5, their mean was measured at 0.01."""


class CheckedGenerator(Protocol):
    """What the check needs of a generator."""

    settings: Any

    async def generate(self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1) -> list[Completion]: ...


@dataclass(frozen=True, slots=True)
class BehaviourError:
    """Differences between the engine's record and a recomputation, over all tokens of the check.

    Args:
        tokens: how many were compared.
        logp, entropy, collision: mean absolute differences; nats, nats, a number.
        worst: the largest of all of them.
    """

    tokens: int
    logp: float
    entropy: float
    collision: float
    worst: float


def processed_logp(logits: Tensor, sampling: SamplingSpec, nucleus: int | None = None) -> Tensor:
    """Return the log-probs that `sampling` draws from.

    Args:
        logits: `[V]`.
        sampling: temperature, then top-k, then top-p: tokens from the likeliest on, until their mass reaches top_p.
        nucleus: number of tokens that top-p keeps, if it is to be forced.

    Returns:
        `[V]` float64, −∞ where a token is removed.
    """
    logp = (logits.double() / sampling.temperature).log_softmax(-1)
    order = logp.argsort(descending=True)
    kept = len(order) if sampling.top_k == 0 else min(sampling.top_k, len(order))
    ranked = logp[order[:kept]].log_softmax(-1)
    before = ranked.exp().cumsum(-1) - ranked.exp()
    size = int((before < sampling.top_p).sum()) if nucleus is None else nucleus
    result = torch.full_like(logp, -torch.inf)
    result[order[:size]] = ranked[:size].log_softmax(-1)
    return result


def recompute(logits: Tensor, token: int, engine: Sequence[float], sampling: SamplingSpec, slack: float) -> np.ndarray:
    """Return the differences of log-prob, entropy and Σμ² at one position, `[3]`.

    Where rounding may put the edge of the nucleus on either side of a token, the size that fits the engine best is
    taken: sizes whose mass is within `slack` of top_p.
    """
    sizes = {
        int((processed_logp(logits, _with_top_p(sampling, p)) > -torch.inf).sum()) for p in _edges(sampling, slack)
    }
    best = np.full(3, np.inf)
    for size in range(min(sizes), max(sizes) + 1):
        logp = processed_logp(logits, sampling, size)
        probs = logp.exp()
        ours = (float(logp[token]), float(torch.special.entr(probs).sum()), float(probs.square().sum()))
        difference = np.abs(np.subtract(ours, engine))
        if difference.max() < best.max():
            best = difference
    return best


def _edges(sampling: SamplingSpec, slack: float) -> tuple[float, float]:
    if sampling.top_p == 1.0:
        return (1.0, 1.0)
    return (max(sampling.top_p - slack, 1e-9), min(sampling.top_p + slack, 1.0))


def _with_top_p(sampling: SamplingSpec, top_p: float) -> SamplingSpec:
    return SamplingSpec(temperature=sampling.temperature, top_p=top_p, top_k=sampling.top_k)


async def check_behaviour(
    generator: CheckedGenerator,
    logits: LogitsFn,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingSpec = CHECK_SAMPLING,
) -> BehaviourError:
    """Compare what the engine records of its own sampling with a recomputation by the trainer.

    Args:
        generator: holds the same weights as `logits`.
        logits: the trainer's.
        prompts: to sample from.
        sampling: how.

    Raises:
        EngineError: they do not match; the message names the worst token. Do not train on this engine.
    """
    dtype = generator.settings.dtype
    found: list[np.ndarray] = []
    worst, where = -1.0, ""
    for prompt in prompts:
        for completion in await generator.generate(prompt, sampling):
            rows = logits([*prompt, *completion.token_ids.tolist()])[len(prompt) - 1 : -1].cpu()
            for place, token in enumerate(completion.token_ids.tolist()):
                engine = (completion.logp_mu[place], completion.entropy_mu[place], completion.collision_mu[place])
                difference = recompute(
                    rows[place], token, [float(number) for number in engine], sampling, _SLACK[dtype]
                )
                # An impossible token or a NaN is an infinite difference, not one that a mean could hide.
                difference = np.nan_to_num(difference, nan=np.inf, posinf=np.inf)
                found.append(difference)
                if difference.max() > worst:
                    worst, where = float(difference.max()), f"token {token} at place {place} after {len(prompt)} tokens"
    if not found:
        raise EngineError("the engine sampled no token in the self-check; give prompts that it can go on from.")
    mean = np.mean(found, axis=0)
    if not (mean <= _MEAN_BOUND[dtype]).all():
        raise EngineError(
            f"the engine's record of its sampling is wrong: log-prob, entropy and collision differ from the trainer's "
            f"by {mean[0]:.3g}, {mean[1]:.3g}, {mean[2]:.3g} on average (bound {_MEAN_BOUND[dtype]:g}) at "
            f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}; worst at {where}. "
            f"Check the hook and its model runner."
        )
    return BehaviourError(len(found), float(mean[0]), float(mean[1]), float(mean[2]), worst)


def perturbed(state: Mapping[str, Tensor], scale: float = 0.2, seed: int = 0) -> dict[str, Tensor]:
    """Return a copy of floating weights, each element multiplied by 1 + `scale`·N(0, 1). Tied tensors stay tied."""
    random = torch.Generator().manual_seed(seed)
    made: dict[int, Tensor] = {}
    for tensor in state.values():
        if tensor.data_ptr() not in made:
            noise = torch.randn(tensor.shape, generator=random).to(tensor.device)
            made[tensor.data_ptr()] = (tensor.float() * (1 + scale * noise)).to(tensor.dtype)
    return {name: made[tensor.data_ptr()] for name, tensor in state.items()}
