"""The learning level's prototype, rebuilt from its description: the peer that bench/sim_speed.py measures against.

Same task, policy sizes, lag schedule, engine errors and objective as the learning level; written as the prototype was:

- a leading run axis on every weight and `baddbmm` for all methods × seeds at once;
- one embedding table per run, read with index offsets; the training pass is one call over all tokens;
- rollouts without gradients, tokens drawn by an exponential race, one random stream for all runs;
- past versions as a list of clones, one selection of weights per version and not per token;
- one `autograd.grad` of the summed losses, a batched Adam by hand with a clip per run, denormals flushed.

It is here for its speed. `sim_speed.py` prints what it learns beside ours, as a check that both do the same work.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from entr_lab.sim.policy import Weights
from entr_lab.sim.scenario import Scenario
from entr_lab.sim.streams import Purpose, stream
from entr_lab.sim.tasks import Episodes
from entr_lab.sim.tasks.tool_call import DIGITS
from entr_lab.sim.warm_start import warm_start

__all__ = ["METHODS", "Prototype"]

METHODS = ("async", "fixed", "icepop", "kpop", "m2po", "entr", "entr16", "sync")


class Prototype:
    """Eight methods × the seeds, trained side by side; the synchronous runs come last."""

    def __init__(self, scenario: Scenario, seeds: Sequence[int]) -> None:
        self.scenario, self.n_seeds = scenario, len(seeds)
        self.runs = len(METHODS) * len(seeds)
        self.stale = self.runs - len(seeds)
        shape = scenario.shape
        worlds = [scenario.task.world(seed) for seed in seeds]
        starts = [
            warm_start(scenario.warm_start, shape, world, seed) for world, seed in zip(worlds, seeds, strict=True)
        ]
        views = Weights.views(shape, torch.stack(starts).repeat(len(METHODS), 1))
        width = len(shape.features) * shape.embedding
        blocks = [views.embed, views.w1.reshape(self.runs, width, shape.hidden), *views[2:]]
        self.weights = [block.clone().requires_grad_() for block in blocks]
        self.moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in self.weights]
        self.right_tool = np.stack([world.right_tool for world in worlds] * len(METHODS))
        self.rows = sum(shape.features)
        self.offsets = torch.tensor(shape.offsets) + torch.arange(self.runs)[:, None, None] * self.rows
        self.past: list[list[Tensor]] = []
        self.random = stream(seeds[0], Purpose.PROMPTS)
        self.metrics: dict[str, Tensor] = {}

    def logits(self, weights: Sequence[Tensor], features: Tensor) -> Tensor:
        """Return `[S, N, V]` for window features `[S, N, 5]`."""
        table, w1, b1, w2, b2, w3, b3 = weights
        read = embedding(features + self.offsets, table.reshape(-1, table.shape[-1]))
        first = torch.baddbmm(b1, read.flatten(-2), w1).relu()
        second = torch.baddbmm(b2, first, w2).relu()
        return torch.baddbmm(b3, second, w3)

    @torch.no_grad()
    def play(self, update: int, rollouts: int, stale: bool) -> tuple[Episodes, Tensor, Tensor, Tensor]:
        """Play one batch; return the episodes, features `[S, R, T, 5]`, recorded log μ and entropy `[S, R, T]`."""
        scenario, errors = self.scenario, self.scenario.engine
        task, size = scenario.task, scenario.group_size
        grid = (self.n_seeds, rollouts)
        digits = self.random.integers(0, DIGITS, (self.n_seeds, -(-rollouts // size), task.turns))
        hints = self.random.integers(0, DIGITS, (*grid, task.turns))
        forgiven = self.random.random((*grid, task.horizon)) < task.tolerance
        several = len(METHODS)
        episodes = Episodes(
            task,
            self.right_tool,
            np.tile(digits.repeat(size, 1)[:, :rollouts], (several, 1, 1)),
            np.tile(hints, (several, 1, 1)),
            np.tile(forgiven, (several, 1, 1)),
        )
        current = [w.detach() for w in self.weights]
        version = -1
        seen, mu, entropies = [], [], []
        for t in range(task.horizon):
            wanted = update - scenario.lag.inter - scenario.lag.intra + (scenario.lag.intra + 1) * t // task.horizon
            if stale and max(0, wanted) != version:
                version = max(0, wanted)
                old = self.past[version - update - 1]
                using = [torch.cat([o[: self.stale], c[self.stale :]]) for o, c in zip(old, current, strict=True)]
            seen.append(torch.from_numpy(episodes.features.copy()))
            z = self.logits(using if stale else current, seen[-1])
            if stale:
                z.mul_(torch.randn_like(z).mul_(errors.relative).add_(1.0))
                flipped = (torch.rand(z.shape[:-1]) < errors.flip_probability).nonzero(as_tuple=True)
                z[flipped] += errors.flip_sd * torch.randn(len(flipped[0]), z.shape[-1])
            logp = z.log_softmax(-1)
            p = logp.exp()
            token = torch.rand_like(p).log_().div_(p).argmax(-1)  # log U / p is minus an exponential of rate p
            entropies.append(-(p * logp).sum(-1))
            mu.append(p.gather(-1, token[..., None])[..., 0])
            episodes.step(token.numpy())
        q = torch.stack(mu, -1)
        if stale:
            heavy = torch.rand_like(q).clamp_min_(0.02).rsqrt_()
            q = q + errors.recording_error * torch.randn_like(q) * heavy * (1 - q)
        return episodes, torch.stack(seen, 2), q.clamp(1e-6, 1.0).log(), torch.stack(entropies, -1)

    def update(self, update: int) -> Tensor:
        """Play and learn from one batch; return the mean reward `[S]`."""
        self.past.append([w.detach().clone() for w in self.weights])
        del self.past[: -self.scenario.lag.inter - self.scenario.lag.intra - 1]
        episodes, features, logp_mu, entropy = self.play(update, self.scenario.rollouts, stale=True)
        reward = torch.from_numpy(episodes.reward())
        groups = reward.view(self.runs, -1, self.scenario.group_size)
        advantage = (groups - groups.mean(-1, keepdim=True)) / (groups.std(-1, keepdim=True) + 1e-4)
        a = advantage.view(self.runs, -1, 1).expand(-1, -1, logp_mu.shape[-1]).flatten(1)
        logp_mu, entropy = logp_mu.flatten(1), entropy.flatten(1)
        tokens = torch.from_numpy(episodes.tokens).flatten(1)[..., None]
        logp = self.logits(self.weights, features.flatten(1, 2)).log_softmax(-1).gather(-1, tokens)[..., 0]
        delta = logp - logp_mu
        keep = self.keep(delta.detach(), logp_mu, logp.detach(), entropy)
        ratio = torch.where(keep, delta, 0.0).exp()
        gradients = torch.autograd.grad(-(keep * ratio * a).mean(-1).sum(), self.weights)
        self.step(gradients, update + 1)
        self.measure(delta.detach(), keep, ratio.detach(), entropy)
        return reward.mean(-1)

    def keep(self, delta: Tensor, logp_mu: Tensor, logp_pi: Tensor, entropy: Tensor) -> Tensor:
        """Return each method's mask on its runs; M2PO ranks all tokens."""
        keep = torch.ones_like(delta, dtype=torch.bool)
        part = {name: slice(i * self.n_seeds, (i + 1) * self.n_seeds) for i, name in enumerate(METHODS)}
        keep[part["fixed"]] = delta[part["fixed"]].abs() <= 1.2
        ratio = delta[part["icepop"]].exp()
        keep[part["icepop"]] = (ratio >= 0.5) & (ratio <= 5.0)
        q, p = logp_mu[part["kpop"]].exp(), logp_pi[part["kpop"]].exp()
        other = (1 - q).clamp_min(1e-9) * ((1 - q).clamp_min(1e-9) / (1 - p).clamp_min(1e-9)).log()
        keep[part["kpop"]] = q * -delta[part["kpop"]] + other <= 0.1
        ordered, order = delta[part["m2po"]].square().sort(-1)
        mean = ordered.cumsum(-1) / torch.arange(1, ordered.shape[-1] + 1)
        keep[part["m2po"]] = keep[part["m2po"]].scatter(-1, order, mean <= 0.04)
        for name, threshold in (("entr", 1.0), ("entr16", 1.6)):
            keep[part[name]] = delta[part[name]].square() <= threshold * (entropy[part[name]] + 0.1)
        return keep

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], count: int) -> None:
        """Apply one Adam step per run, its gradient clipped by that run's norm."""
        s = self.scenario.optimiser
        norm = torch.stack([g.flatten(1).square().sum(-1) for g in gradients]).sum(0).sqrt()
        scale = (s.clip / (norm + 1e-6)).clamp(max=1.0)[:, None, None]
        for w, g, (first, second) in zip(self.weights, gradients, self.moments, strict=True):
            g = g * scale
            first.mul_(s.beta1).add_(g, alpha=1 - s.beta1)
            second.mul_(s.beta2).addcmul_(g, g, value=1 - s.beta2)
            bottom = (second / (1 - s.beta2**count)).sqrt_().add_(s.eps)
            w.addcdiv_(first, bottom, value=-s.learning_rate / (1 - s.beta1**count))

    def measure(self, delta: Tensor, keep: Tensor, ratio: Tensor, entropy: Tensor) -> None:
        """Take the columns of the prototype's tables."""
        dropped = ~keep
        count = dropped.sum(-1).clamp_min(1)
        self.metrics = {
            "masked": dropped.float().mean(-1),
            "entropy_masked": (entropy * dropped).sum(-1) / count,
            "kept_square": (ratio.square() * keep).sum(-1) / keep.sum(-1).clamp_min(1),
            "masked_peaked": (dropped & (entropy < 0.1)).sum(-1) / count,
            "m2": delta.square().mean(-1),
        }

    def evaluate(self) -> Tensor:
        """Return the mean reward `[S]` of on-policy rollouts."""
        episodes, *_ = self.play(0, self.scenario.eval_rollouts, stale=False)
        return torch.from_numpy(episodes.reward()).mean(-1)
