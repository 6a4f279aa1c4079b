"""Sampling of rollouts for many runs at once: the sequential part of the learning level.

Every elementwise operation and every batched product gives a run bitwise the same numbers whatever other runs share
its batch (a test holds this), so runs may be grouped for speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from entr_lab.sim.policy import Folded, PolicyShape
from entr_lab.sim.recording import BehaviourNoise
from entr_lab.sim.tasks import Episodes

__all__ = ["Rollouts", "Sampler"]


@dataclass(frozen=True, slots=True, eq=False)
class Rollouts:
    """Finished rollouts of S runs, R each, T tokens long."""

    tokens: Tensor
    """`[S, R, T]` int64."""
    rows: Tensor
    """`[S, R, T, features]` int64 rows of the policy's table that each token was sampled from."""
    logp: Tensor
    """`[S, R, T]` log μ(y) of the distribution that was sampled from, nats."""
    entropy: Tensor
    """`[S, R, T]` its entropy, nats."""


class Sampler:
    """Draws rollouts from a ring of folded policies.

    Args:
        shape: the policy's sizes.
        runs: S; runs are ordered method by method, and within a method by seed.
        rollouts: R per run.
        horizon: T.
    """

    def __init__(self, shape: PolicyShape, runs: int, rollouts: int, horizon: int) -> None:
        self.shape, self.runs, self.rollouts, self.horizon = shape, runs, rollouts, horizon
        grid = (runs, rollouts)
        self._offsets = np.array(shape.offsets)
        self._run_base = (np.arange(runs) * sum(shape.features))[:, None, None]
        self._bags = torch.arange(0, runs * rollouts * len(shape.features), len(shape.features))
        self._second = torch.empty(*grid, shape.hidden)
        self._logits = torch.empty(*grid, shape.vocabulary)
        self._noisy = torch.empty(*grid, shape.vocabulary)
        self._below = torch.empty(*grid, shape.vocabulary)

    def sample(
        self,
        ring: Folded,
        slots: NDArray[np.int64],
        episodes: Episodes,
        uniforms: NDArray[np.float32],
        noise: BehaviourNoise | None,
    ) -> Rollouts:
        """Play the episodes to their end.

        Args:
            ring: folded policies `[slots, S, …]`.
            slots: `[1, T]` or `[R, T]`, which of them samples each token.
            episodes: fresh episodes `[S, R]`.
            uniforms: `[T, seeds, R]` in (0, 1]; equal for all methods of a seed.
            noise: the engine's logit errors for those seeds, or None for the clean policy.
        """
        seeds = uniforms.shape[1]
        by_seed = (self.runs // seeds, seeds, self.rollouts)
        rows = np.empty((self.runs, self.rollouts, self.horizon, len(self._offsets)), dtype=np.int64)
        chosen, normaliser, energy = np.empty((3, self.horizon, self.runs, self.rollouts), dtype=np.float32)
        for t in range(self.horizon):
            here = np.add(episodes.features, self._offsets, out=rows[:, :, t])
            logits = self._step_logits(ring, slots[:, t], here)
            if noise is not None:
                noisy = self._noisy.view(*by_seed, -1)
                torch.addcmul(noise.shift[t], logits.view(*by_seed, -1), noise.scale[t], out=noisy)
                logits = self._noisy
            logits -= logits.amax(-1, keepdim=True)
            mass = logits.exp()
            below = torch.cumsum(mass, -1, out=self._below).numpy()
            normaliser[t] = below[..., -1]
            threshold = normaliser[t].reshape(by_seed) * uniforms[t]
            token = (below >= threshold.reshape(self.runs, self.rollouts, 1)).argmax(-1)
            chosen[t] = logits.gather(-1, torch.from_numpy(token)[..., None])[..., 0].numpy()
            energy[t] = mass.mul_(logits).sum(-1).numpy()
            episodes.step(token)
        log_normaliser = torch.from_numpy(normaliser).log()
        logp = torch.from_numpy(chosen) - log_normaliser
        # Rounding can leave a deterministic token with an entropy of −1e-8.
        entropy = (log_normaliser - torch.from_numpy(energy) / torch.from_numpy(normaliser)).clamp_min_(0.0)
        to_rollouts = (1, 2, 0)
        return Rollouts(
            torch.from_numpy(episodes.tokens),
            torch.from_numpy(rows),
            logp.permute(to_rollouts).contiguous(),
            entropy.permute(to_rollouts).contiguous(),
        )

    def _step_logits(self, ring: Folded, slots: NDArray[np.int64], here: NDArray[np.int64]) -> Tensor:
        runs, width = self.runs, self.shape.hidden
        stride = runs * ring.table.shape[-2]
        index = torch.from_numpy(here + self._run_base + (slots * stride)[None, :, None])
        first = embedding_bag(index.view(-1), ring.table.view(-1, width), self._bags, mode="sum")
        first = first.relu_().view(runs, self.rollouts, width)
        if len(slots) == 1:
            return self._upper(ring.at(int(slots[0])), first, self._second, self._logits)
        # Rollouts of different versions: one product per version that occurs at this step.
        for slot in np.unique(slots):
            members = torch.from_numpy(np.flatnonzero(slots == slot))
            self._logits[:, members] = self._upper(ring.at(int(slot)), first[:, members], None, None)
        return self._logits

    @staticmethod
    def _upper(folded: Folded, first: Tensor, second: Tensor | None, logits: Tensor | None) -> Tensor:
        second = torch.baddbmm(folded.b2, first, folded.w2, out=second).relu_()
        return torch.baddbmm(folded.b3, second, folded.w3, out=logits)
