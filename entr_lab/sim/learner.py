"""The trainer's half: per-run Adam with a per-run clip, and the gradient of an objective by the policy.

Autograd runs only from the loss to log π of the sampled tokens; from there on the backward pass is written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.distinct import Repeats
from entr_lab.sim.policy import Activations, Folded, backward, forward

__all__ = ["Adam", "AdamSettings", "TokenPass", "policy_gradient", "token_pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamSettings:
    """Optimiser of the training runs.

    Raises:
        RangeError: a number is outside its bound.
    """

    learning_rate: float = 5e-4
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    clip: float = 1.0
    """Largest norm of one run's gradient; larger ones are scaled down to it."""

    def __post_init__(self) -> None:
        check_range("learning_rate", self.learning_rate, low=0, high=float("inf"), high_open=True)
        check_range("beta1", self.beta1, low=0, high=1, high_open=True)
        check_range("beta2", self.beta2, low=0, high=1, high_open=True)
        check_range("eps", self.eps, low=0, low_open=True)
        check_range("clip", self.clip, low=0, low_open=True)


class Adam:
    """Adam on `[S, P]`, every run by itself; a run whose gradient is not finite is frozen where it stands."""

    def __init__(self, settings: AdamSettings, parameters: Tensor) -> None:
        self.settings = settings
        self.parameters = parameters
        self.alive = torch.ones(len(parameters), dtype=torch.bool)
        self._first = torch.zeros_like(parameters)
        self._second = torch.zeros_like(parameters)
        self._steps = 0

    def step(self, gradient: Tensor, learning_rate: float | None = None) -> Tensor:
        """Apply one update in place; return the gradient norm `[S]` before the clip.

        `gradient` is consumed. A run that was frozen, or whose gradient norm is not finite, keeps its parameters.
        """
        s = self.settings
        rate = s.learning_rate if learning_rate is None else learning_rate
        self._steps += 1
        norm: Tensor = torch.linalg.vector_norm(gradient, dim=-1)
        self.alive &= norm.isfinite()
        gradient[~self.alive] = 0.0
        gradient *= (s.clip / (norm + 1e-6)).clamp_(max=1.0).nan_to_num_(nan=0.0)[:, None]
        self._first.lerp_(gradient, 1 - s.beta1)
        self._second.mul_(s.beta2).addcmul_(gradient, gradient, value=1 - s.beta2)
        bias1, bias2 = 1 - s.beta1**self._steps, 1 - s.beta2**self._steps
        scale = self._second.sqrt().div_(bias2**0.5).add_(s.eps)
        step = self._first.div(scale).mul_(rate / bias1)
        step[~self.alive] = 0.0
        self.parameters -= step
        return norm


class TokenPass(NamedTuple):
    """One policy's pass over the U distinct rows of sampled tokens, kept for its gradient."""

    repeats: Repeats
    kept: Activations
    mass: Tensor
    """`[U, V]` π times the normaliser."""
    normaliser: Tensor
    """`[U]` sum of the mass."""
    logp: Tensor
    """`[N]` log π of the sampled tokens."""


def token_pass(folded: Folded, repeats: Repeats, tokens: Tensor) -> TokenPass:
    """Return log π of `tokens` `[N]` under one policy at the rows of `repeats`, and what its gradient needs."""
    kept = forward(folded, repeats.rows)
    mass = kept.shifted.exp()
    normaliser = mass.sum(-1)
    chosen = torch.add(tokens, repeats.place, alpha=mass.shape[-1])
    logp = kept.shifted.view(-1).take(chosen) - normaliser.log().take(repeats.place)
    return TokenPass(repeats, kept, mass, normaliser, logp)


def policy_gradient(folded: Folded, tokens: Tensor, passed: TokenPass, d_logp: Tensor, out: Folded) -> None:
    """Write into `out` the gradient of Σ d_logp · log π(tokens) by one folded policy; ∂ log π(y)/∂z = e_y − π.

    `d_logp` is `[n]` with n ≤ N: tokens from n on have no gradient, and rows that only they have cost nothing.
    """
    count = len(d_logp)
    distinct = int(passed.repeats.seen[count - 1]) if count else 0
    place, size = passed.repeats.place[:count], passed.mass.shape[-1]
    drawn = torch.zeros(distinct, size, dtype=d_logp.dtype)
    drawn.view(-1).scatter_add_(0, torch.add(tokens[:count], place, alpha=size), d_logp)
    share = drawn.sum(-1).div_(passed.normaliser[:distinct])
    d_logits = drawn.addcmul_(passed.mass[:distinct], share[:, None], value=-1)
    backward(folded, passed.repeats.rows[:distinct], passed.kept.head(distinct), d_logits, out)
