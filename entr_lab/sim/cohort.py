"""A cohort: the runs of some methods × some seeds, trained side by side in one process.

Runs share code and noise blocks, never numbers: a run is bitwise the same in any cohort. Order of one update v:

    1. sample R rollouts per run, token t by version max(0, v − lag(t)), with the engine's errors;
    2. reward, group advantages;
    3. log π of every token under version v; the method's own rule and objective decide;
    4. one clipped Adam step, which makes version v + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from entr_lab.diagnostics import diagnose
from entr_lab.objective import Method, policy_loss
from entr_lab.sim.distinct import DistinctRows
from entr_lab.sim.experience import Experience
from entr_lab.sim.lag import LagTable
from entr_lab.sim.learner import Adam, policy_gradient, token_pass
from entr_lab.sim.outcome import RunRecord
from entr_lab.sim.policy import Folded, Weights, fold, unfold_gradient
from entr_lab.sim.recording import behaviour_noise
from entr_lab.sim.rollouts import Sampler
from entr_lab.sim.run_log import RunLog
from entr_lab.sim.scenario import Scenario
from entr_lab.sim.streams import Purpose, stream
from entr_lab.sim.tasks import Episodes
from entr_lab.sim.tasks.tool_call import DIGITS
from entr_lab.sim.warm_start import warm_start

__all__ = ["Cohort"]

_TRAINING = (Purpose.PROMPTS, Purpose.SAMPLING, Purpose.ENVIRONMENT)
_EVALUATION = (Purpose.EVAL_PROMPTS, Purpose.EVAL_SAMPLING, Purpose.EVAL_ENVIRONMENT)


class _Generation:
    """The generators of one group of methods that share a lag: a sampler and its ring of past policies."""

    def __init__(self, scenario: Scenario, first_run: int, runs: int, lag: LagTable) -> None:
        self.runs = slice(first_run, first_run + runs)
        self.lag = lag
        self.ring = Folded.empty(scenario.shape, lag.depth, runs)
        self.sampler = Sampler(scenario.shape, runs, scenario.rollouts, scenario.task.horizon)

    def receive(self, version: int, policies: Folded) -> None:
        """Remember `version` `[S, …]` of all runs, over the oldest that no token may need."""
        for mine, theirs in zip(self.ring.at(version % self.lag.depth), policies, strict=True):
            mine.copy_(theirs[self.runs])


class Cohort:
    """See the module. `methods` and `seeds` span the runs, method by method; synchronous methods come last."""

    def __init__(self, scenario: Scenario, methods: Sequence[Method], seeds: Sequence[int]) -> None:
        self.scenario = scenario
        self.methods = sorted(methods, key=lambda method: method.synchronous)
        self.seeds = tuple(seeds)
        shape, horizon = scenario.shape, scenario.task.horizon
        worlds = [scenario.task.world(seed) for seed in seeds]
        starts = [
            warm_start(scenario.warm_start, shape, world, seed) for world, seed in zip(worlds, seeds, strict=True)
        ]
        self.parameters = torch.stack(starts).repeat(len(self.methods), 1)
        runs = len(self.parameters)
        lagged = len(self.seeds) * sum(not method.synchronous for method in self.methods)
        self._weights = Weights.views(shape, self.parameters)
        self._adam = Adam(scenario.optimiser, self.parameters)
        self._current, self._slope = Folded.empty(shape, runs), Folded.empty(shape, runs)
        self._gradient = torch.empty_like(self.parameters)
        self._right_tool = np.stack([world.right_tool for world in worlds] * len(self.methods))
        self._evaluator = Sampler(shape, runs, scenario.eval_rollouts, horizon)
        on_policy = LagTable(np.zeros((1, horizon), dtype=np.int64))
        self._generations = [
            _Generation(scenario, first, count, lag)
            for first, count, lag in ((0, lagged, scenario.lag.lag_table(horizon)), (lagged, runs - lagged, on_policy))
            if count
        ]
        self._distinct = DistinctRows(shape)
        self._log = RunLog(runs, scenario)

    def train(self, stop: Callable[[], bool] = lambda: False) -> Iterator[int]:
        """Train all runs; yield the number of finished updates after each. `stop` is asked before every update."""
        scenario = self.scenario
        for update in range(scenario.updates):
            if stop():
                return
            self._publish(update)
            if update % scenario.eval_every == 0:
                self._evaluate(update)
            self._update(update)
            yield update + 1
        self._publish(scenario.updates)
        self._evaluate(scenario.updates)

    def records(self) -> list[RunRecord]:
        """Return what every run has left so far, in the order of the runs."""
        labels = [(method.name, seed) for method in self.methods for seed in self.seeds]
        return [self._log.record(run, *label) for run, label in enumerate(labels)]

    def _publish(self, version: int) -> None:
        fold(self.scenario.shape, self._weights, self._current)
        for generation in self._generations:
            generation.receive(version, self._current)

    def _update(self, update: int) -> None:
        scenario = self.scenario
        noise = behaviour_noise(
            scenario.engine,
            self.seeds,
            update,
            scenario.task.horizon,
            scenario.rollouts,
            scenario.shape.vocabulary,
        )
        for generation in self._generations:
            versions = generation.lag.versions(update, scenario.rollouts)
            episodes, uniforms = self._episodes(update, scenario.rollouts, generation.runs, _TRAINING)
            slots = versions % generation.lag.depth
            rollouts = generation.sampler.sample(generation.ring, slots, episodes, uniforms, noise)
            experience = Experience.of(rollouts, episodes.reward(), noise.error, versions, scenario.group_size)
            start, count = generation.runs.start, len(self.seeds)
            for first in range(start, generation.runs.stop, count):
                self._learn(update, first, experience.runs(slice(first - start, first - start + count)))
        unfold_gradient(scenario.shape, self._weights, self._slope, Weights.views(scenario.shape, self._gradient))
        norm = self._adam.step(self._gradient)
        self._log.step(update, norm, self._adam.alive)

    def _learn(self, update: int, first: int, experience: Experience) -> None:
        """Write the gradient of one method, whose runs start at `first`, from their `experience`."""
        method, runs = self.methods[first // len(self.seeds)], range(first, first + len(self.seeds))
        passes = [
            token_pass(self._current.at(run), self._distinct.of(experience.rows[i]), experience.tokens[i])
            for i, run in enumerate(runs)
        ]
        logp_pi = torch.stack([passed.logp for passed in passes])
        # A rule drops tokens whose ratio is not a number, so a ruined policy need not show in its gradient.
        self._adam.alive[runs.start : runs.stop] &= logp_pi.isfinite().all(-1)
        logp_pi.requires_grad_()
        batch = experience.batch(logp_pi, update, method.advantage)
        outcome = policy_loss(method, batch)
        (d_logp,) = torch.autograd.grad(outcome.loss.sum(), logp_pi)
        # Groups without advantage come last and have an exactly zero gradient: stop before them.
        moving = (d_logp.view(len(runs), self.scenario.prompts, -1) != 0).any(-1)
        per_group = d_logp.shape[-1] // self.scenario.prompts
        for i, run in enumerate(runs):
            count = per_group * (int(moving[i].nonzero().max()) + 1 if moving[i].any() else 0)
            slope = self._slope.at(run)
            policy_gradient(self._current.at(run), experience.tokens[i], passes[i], d_logp[i, :count], slope)
        metrics = diagnose(batch, outcome.keep, outcome.weight)
        metrics["reward"] = experience.reward.mean(-1)
        metrics["entropy_mu"] = batch.entropy_mu.mean(-1)
        self._log.batch(update, slice(runs.start, runs.stop), metrics, batch, outcome.keep)

    def _evaluate(self, update: int) -> None:
        """Play on-policy rollouts of the clean policy of every run."""
        episodes, uniforms = self._episodes(update, self.scenario.eval_rollouts, slice(None), _EVALUATION)
        slots = np.zeros((1, self.scenario.task.horizon), dtype=np.int64)
        current = Folded(*(block[None] for block in self._current))
        rollouts = self._evaluator.sample(current, slots, episodes, uniforms, None)
        self._log.evaluation(update, episodes.reward().mean(-1), rollouts.entropy.mean((1, 2)).numpy())

    def _episodes(
        self, update: int, rollouts: int, runs: slice, purposes: tuple[Purpose, Purpose, Purpose]
    ) -> tuple[Episodes, NDArray[np.float32]]:
        """Draw prompts, environment and sampling uniforms of one update; equal for all methods of a seed."""
        task, size = self.scenario.task, self.scenario.group_size
        prompts, sampling, environment = purposes
        digits, hints, forgiven, uniforms = [], [], [], []
        for seed in self.seeds:
            drawn = stream(seed, prompts, update).integers(0, DIGITS, (-(-rollouts // size), task.turns))
            digits.append(drawn.repeat(size, 0)[:rollouts])
            rng = stream(seed, environment, update)
            hints.append(rng.integers(0, DIGITS, (rollouts, task.turns)))
            forgiven.append(rng.random((rollouts, task.horizon), dtype=np.float32) < task.tolerance)
            uniform = stream(seed, sampling, update).random((task.horizon, rollouts), dtype=np.float32)
            uniforms.append(1.0 - uniform)
        right_tool = self._right_tool[runs]
        methods = len(right_tool) // len(self.seeds)
        episodes = Episodes(
            task, right_tool, np.stack(digits * methods), np.stack(hints * methods), np.stack(forgiven * methods)
        )
        return episodes, np.stack(uniforms, axis=1)
