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
from entr_lab.objective import Method, PolicyLoss, policy_loss
from entr_lab.sim.distinct import DistinctRows
from entr_lab.sim.experience import Experience
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
from entr_lab.tokens import TokenBatch

__all__ = ["Cohort"]

_TRAINING = (Purpose.PROMPTS, Purpose.SAMPLING, Purpose.ENVIRONMENT)
_EVALUATION = (Purpose.EVAL_PROMPTS, Purpose.EVAL_SAMPLING, Purpose.EVAL_ENVIRONMENT)


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
        first_synchronous = len(self.seeds) * sum(not method.synchronous for method in self.methods)
        self._synchronous = slice(first_synchronous, runs)
        self._weights = Weights.views(shape, self.parameters)
        self._adam = Adam(scenario.optimiser, self.parameters)
        self._current, self._slope = Folded.empty(shape, runs), Folded.empty(shape, runs)
        self._lag = scenario.lag.lag_table(horizon)
        self._ring = Folded.empty(shape, self._lag.depth, runs)
        self._gradient = torch.empty_like(self.parameters)
        self._right_tool = np.stack([world.right_tool for world in worlds] * len(self.methods))
        self._sampler = Sampler(shape, runs, scenario.rollouts, horizon)
        self._evaluator = Sampler(shape, runs, scenario.eval_rollouts, horizon)
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
        """Remember `version` of all runs, over the oldest that no token may need."""
        fold(self.scenario.shape, self._weights, self._current)
        for past, now in zip(self._ring.at(version % self._lag.depth), self._current, strict=True):
            past.copy_(now)

    def _update(self, update: int) -> None:
        scenario = self.scenario
        experience = self._play(update)
        # Filled in later, method by method: whatever else a batch checks is known now, for all runs at once.
        logp_pi = torch.zeros(experience.tokens.shape, requires_grad=True)
        kinds = {method.advantage for method in self.methods}
        batches = {kind: experience.batch(logp_pi, update, kind) for kind in kinds}
        for method, runs in self._by_method():
            batch = batches[method.advantage].runs(runs)
            outcome = self._learn(method, runs, experience, batch)
            metrics = diagnose(batch, outcome.keep, outcome.weight)
            metrics["reward"] = experience.reward[runs].mean(-1)
            metrics["entropy_mu"] = batch.entropy_mu.mean(-1)
            self._log.batch(update, runs, metrics, batch, outcome.keep)
        # A rule drops tokens whose ratio is not a number, so a ruined policy need not show in its gradient.
        self._adam.alive &= logp_pi.detach().isfinite().all(-1)
        unfold_gradient(scenario.shape, self._weights, self._slope, Weights.views(scenario.shape, self._gradient))
        norm = self._adam.step(self._gradient)
        self._log.step(update, norm, self._adam.alive)

    def _by_method(self) -> Iterator[tuple[Method, slice]]:
        """Yield every method with its runs."""
        count = len(self.seeds)
        for place, method in enumerate(self.methods):
            yield method, slice(place * count, (place + 1) * count)

    def _play(self, update: int) -> Experience:
        """Sample this update's rollouts, each token by the version that its run's method prescribes."""
        scenario, horizon = self.scenario, self.scenario.task.horizon
        noise = behaviour_noise(
            scenario.engine, self.seeds, update, horizon, scenario.rollouts, scenario.shape.vocabulary
        )
        versions = self._lag.versions(update, scenario.rollouts)
        slots = versions % self._lag.depth
        # A synchronous run has no past: whatever version a token asks for, it finds the current one.
        for slot in np.unique(slots):
            for past, now in zip(self._ring.at(int(slot)), self._current, strict=True):
                past[self._synchronous] = now[self._synchronous]
        episodes, uniforms = self._episodes(update, scenario.rollouts, _TRAINING)
        rollouts = self._sampler.sample(self._ring, slots, episodes, uniforms, noise)
        experience = Experience.of(rollouts, episodes.reward(), noise.error, versions, scenario.group_size)
        experience.weight_version[self._synchronous] = update
        return experience

    def _learn(self, method: Method, runs: slice, experience: Experience, batch: TokenBatch) -> PolicyLoss:
        """Write log π into the `batch` of one method's runs, and their gradient."""
        folded, rows, tokens = self._current.at(runs), experience.rows[runs], experience.tokens[runs]
        passes = [token_pass(folded.at(i), self._distinct.of(rows[i]), tokens[i]) for i in range(len(self.seeds))]
        torch.stack([passed.logp for passed in passes], out=batch.logp_pi.detach())
        outcome = policy_loss(method, batch)
        (d_logp,) = torch.autograd.grad(outcome.loss.sum(), batch.logp_pi)
        slope = self._slope.at(runs)
        # Backwards, since what the last run's pass left is still in cache.
        for i in reversed(range(len(passes))):
            # Groups without advantage come last and have an exactly zero gradient: stop before them.
            moving = np.flatnonzero(d_logp[i].numpy())
            count = int(moving[-1]) + 1 if len(moving) else 0
            policy_gradient(folded.at(i), tokens[i], passes[i], d_logp[i, :count], slope.at(i))
        return outcome

    def _evaluate(self, update: int) -> None:
        """Play on-policy rollouts of the clean policy of every run."""
        episodes, uniforms = self._episodes(update, self.scenario.eval_rollouts, _EVALUATION)
        slots = np.zeros((1, self.scenario.task.horizon), dtype=np.int64)
        current = Folded(*(block[None] for block in self._current))
        rollouts = self._evaluator.sample(current, slots, episodes, uniforms, None)
        self._log.evaluation(update, episodes.reward().mean(-1), rollouts.entropy.mean((1, 2)).numpy())

    def _episodes(
        self, update: int, rollouts: int, purposes: tuple[Purpose, Purpose, Purpose]
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
        methods = len(self.methods)
        episodes = Episodes(
            task, self._right_tool, np.stack(digits * methods), np.stack(hints * methods), np.stack(forgiven * methods)
        )
        return episodes, np.stack(uniforms, axis=1)
