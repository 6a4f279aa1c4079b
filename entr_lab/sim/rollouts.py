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
        grid, size = (runs, rollouts), shape.vocabulary
        self._offsets = np.array(shape.offsets)
        self._run_base = (np.arange(runs) * sum(shape.features))[:, None, None]
        self._bags = torch.arange(0, runs * rollouts * len(shape.features), len(shape.features))
        self._second = torch.empty(*grid, shape.hidden)
        self._logits, self._mass, self._below = torch.empty(3, *grid, size).unbind()
        self._top, self._threshold = torch.empty(2, *grid, 1).unbind()

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
        chosen, normaliser, energy = torch.empty(3, self.horizon, self.runs, self.rollouts, 1).unbind()
        uniform = torch.from_numpy(uniforms)[..., None]
        token = torch.empty(self.runs, self.rollouts, 1, dtype=torch.int64)
        threshold, last = self._threshold.view(*by_seed, 1), self.shape.vocabulary - 1
        drawn = token.numpy()[..., 0]
        for t in range(self.horizon):
            here = np.add(episodes.features, self._offsets, out=rows[:, :, t])
            logits = self._step_logits(ring, slots[:, t], here)
            if noise is not None:
                clean = logits.view(*by_seed, -1)
                torch.addcmul(noise.shift[t], clean, noise.scale[t], out=clean)
            logits -= torch.amax(logits, -1, keepdim=True, out=self._top)
            mass = torch.exp(logits, out=self._mass)
            below = torch.cumsum(mass, -1, out=self._below)
            normaliser[t] = below[..., -1:]
            torch.mul(normaliser[t].view(*by_seed, 1), uniform[t], out=threshold)
            # Logits that are not numbers have no such token: take the last one, the run is about to be frozen.
            torch.searchsorted(below, self._threshold, out=token).clamp_(max=last)
            torch.gather(logits, -1, token, out=chosen[t])
            torch.sum(mass.mul_(logits), -1, keepdim=True, out=energy[t])
            episodes.step(drawn)
        log_normaliser = normaliser.log()
        # Rounding can leave a deterministic token with an entropy of −1e-8.
        entropy = (log_normaliser - energy / normaliser).clamp_min_(0.0)
        to_rollouts = (1, 2, 0)
        return Rollouts(
            torch.from_numpy(episodes.tokens),
            torch.from_numpy(rows),
            (chosen - log_normaliser)[..., 0].permute(to_rollouts).contiguous(),
            entropy[..., 0].permute(to_rollouts).contiguous(),
        )

    def _step_logits(self, ring: Folded, slots: NDArray[np.int64], here: NDArray[np.int64]) -> Tensor:
        runs, width = self.runs, self.shape.hidden
        stride = runs * ring.table.shape[-2]
        index = torch.from_numpy(here + (self._run_base + (slots * stride)[None, :, None]))
        first = torch.embedding_bag(ring.table.view(-1, width), index.view(-1), self._bags)[0]
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
        result: Tensor = torch.baddbmm(folded.b3, second, folded.w3, out=logits)
        return result
