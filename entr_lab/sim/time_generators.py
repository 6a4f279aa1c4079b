"""The generators of a plan on the virtual clock: feeding them, what they report, why they idle, how they fail.

What may be dispatched, and when weights may be loaded, is the pipeline's decision; here is when it is asked.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush, heapreplace
from statistics import fmean

from entr_lab.errors import ConfigError
from entr_lab.pipeline import Outcome, Pipeline, PipelineConfig, Prompt, Reason, Trajectory, Wait
from entr_lab.pipeline.decisions import DropReason
from entr_lab.pipeline.drop_bias import DropBias
from entr_lab.pipeline.records import Group
from entr_lab.sim.clock import VirtualClock
from entr_lab.sim.idle import Account
from entr_lab.sim.plan_costs import costs_of
from entr_lab.sim.plan_draws import Draws, GroupDraw
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_stats import Area

__all__ = ["Generators"]

_LIMITS = frozenset({Reason.STALENESS, Reason.IN_FLIGHT, Reason.BUFFER_FULL})
_PROMPTS = 512
_HOPELESS = 100
"""Batches of dropped groups, without a step between, after which a run is given up."""


class Generators:
    """All generators of a run, with the pipeline and the clock; `_take` is where a trainer comes in.

    Args:
        plan: the plan.
        config: settings of its pipeline.
        seed: seed of everything random.
        timeline: keep the stretches of every account.
    """

    def __init__(self, plan: Plan, config: PipelineConfig, seed: int, timeline: bool) -> None:
        self.plan = plan
        engine_costs, self.trainer_costs, self.sync = costs_of(plan)
        self.slots = engine_costs.slots
        self.prompt_tokens, self.reward_seconds = plan.lengths.prompt, plan.tools.reward_seconds
        self.clock = VirtualClock()
        self.draws = Draws(plan, seed)
        self.drop_bias = DropBias()
        self.pipeline = Pipeline(config, closed=self._closed)
        self.engines = [Engine(index, engine_costs) for index in range(plan.generators)]
        self.names = [f"generator-{index:04d}" for index in range(plan.generators)]
        self.alive = [True] * plan.generators
        self.held_back = [False] * plan.generators
        # Loads as load · generators + index, smallest first; entries that no longer hold are skipped, and generators
        # whose load has changed since the last feeding are entered anew by it.
        self.loads: list[int] = []
        self.changed = set(range(plan.generators))
        self.accounts = [Account(name, "stragglers", keep_segments=timeline) for name in self.names]
        self.rollouts: dict[int, Rollout] = {}
        self.blocked = Reason.NO_PROMPTS
        self.open = True
        self.expiry_due = False
        self.synced = self.dropped = 0
        self.queue, self.in_flight = Area(), Area()
        self.rollout_seconds = self.running_seconds = 0.0
        for index, name in enumerate(self.names):
            self.pipeline.join(name, 0)
            if plan.failures is not None:
                self.clock.after(self.draws.life_time(), self._fail, index)

    def _take(self) -> None:
        """Let the trainer take a batch if it is free and there is one; without a trainer, nothing happens."""

    # --- giving work to generators ----------------------------------------------------------------------------------

    def _go_on(self, _: object = None) -> None:
        """Something may have become possible: feed the generators and the trainer."""
        self.open = True
        self._feed()
        self._take()

    def _feed(self) -> None:
        """Give rollouts to the least loaded generators until the pipeline or the slots say no."""
        now, engines, count, loads = self.clock.now, self.engines, len(self.engines), self.loads
        touched: dict[int, None] = {}
        group, number, needs = -1, -1, GroupDraw()
        pipeline, names, slots = self.pipeline, self.names, self.slots
        self._enter_changed()
        while loads:
            load, index = divmod(loads[0], count)
            engine = engines[index]
            if load != engine.load or not self.alive[index]:
                heappop(loads)
                continue
            if load >= slots:
                self.blocked = Reason.IN_FLIGHT
                break
            if not pipeline.prompts_left:
                self._add_prompts()
            # A few at a time where many run already, which unbalances the loads by a sixteenth at most.
            given = pipeline.dispatch(names[index], min(1 + load // 16, slots - load), now)
            if isinstance(given, Wait):
                if given.reason is Reason.WORKER_VERSION:
                    heappop(loads)
                    self._try_update(index)
                    self._enter_changed()
                    continue
                self.blocked, self.open = given.reason, False
                break
            if not engine.running:
                self.accounts[index].mark(now, "generating")
            for trajectory in given:
                if trajectory.group != group:
                    group, number = trajectory.group, int(pipeline.prompt(trajectory.group).id)
                    needs = self.draws.group(number)
                self._launch(trajectory, number, needs, engine)
            self.in_flight.change(now, len(given))
            heapreplace(loads, engine.load * count + index)
            touched[index] = None
        for index in touched:
            self._schedule(engines[index])
        if self.plan.protocol.deadline is not None:
            self._watch_deadline()

    def _add_prompts(self) -> None:
        """Add prompts; the difficulty of one is the mean length (tokens) that its rollouts ask for."""
        first = self.pipeline.counts.prompts
        self.pipeline.add_prompts(
            Prompt(str(number), difficulty=fmean(self.draws.group(number).lengths))
            for number in range(first, first + _PROMPTS)
        )

    def _enter_changed(self) -> None:
        count, loads = len(self.engines), self.loads
        if len(loads) > 4 * count:  # mostly entries that no longer hold
            loads.clear()
            self.changed.update(range(count))
        for index in sorted(self.changed):
            heappush(loads, self.engines[index].load * count + index)
        self.changed.clear()

    def _launch(self, trajectory: Trajectory, number: int, needs: GroupDraw, engine: Engine) -> None:
        now, ticket, prompt = trajectory.started, trajectory.ticket, self.prompt_tokens
        tokens = needs.lengths[trajectory.index]
        calls = min(needs.turns[trajectory.index], tokens)
        rollout = Rollout(ticket, number, tokens, tokens // calls, prompt, prompt, calls, now)
        self.rollouts[ticket] = rollout
        engine.arrive(now, rollout)

    def _schedule(self, engine: Engine) -> None:
        time, clock = engine.next_completion(), self.clock
        if time < math.inf:
            clock.at(time if time > clock.now else clock.now, self._turn_ends, (engine, engine.epoch))

    # --- what generators do -----------------------------------------------------------------------------------------

    def _turn_ends(self, event: tuple[Engine, int]) -> None:
        engine, epoch = event
        if epoch != engine.epoch:
            return
        now = self.clock.now
        rollout = engine.complete(now)
        self.running_seconds += now - rollout.entered
        self.changed.add(engine.index)
        if rollout.turns > 1:
            self.clock.after(self.draws.tool_wait(), self._tool_answers, rollout)
        elif self.reward_seconds:
            if self.pipeline.generated(rollout.ticket, rollout.spans, now) is not Outcome.OPEN:
                self._settle()
            self.clock.after(self.reward_seconds, self._finish, rollout)
        else:
            self._finish(rollout)
        if self.held_back[engine.index]:
            self._try_update(engine.index)
        if self.open:
            self._feed()
        if engine.epoch == epoch + 1:  # nothing has changed it, so nothing has scheduled it
            self._schedule(engine)
        if not engine.running:
            self._mark_idle(engine.index)

    def _tool_answers(self, rollout: Rollout) -> None:
        if rollout.ticket not in self.rollouts:
            return
        now, answer = self.clock.now, self.plan.tools.tokens
        done = rollout.spans[-1].stop
        rollout.turns -= 1
        rollout.left = (rollout.tokens - done) // rollout.turns
        rollout.answers += answer
        rollout.context, rollout.prefill = self.plan.lengths.prompt + done + rollout.answers, answer
        engine = self.engines[rollout.engine]
        if not engine.running:
            self.accounts[engine.index].mark(now, "generating")
        engine.arrive(now, rollout)
        self.changed.add(engine.index)
        self._schedule(engine)

    def _finish(self, rollout: Rollout) -> None:
        ticket, now = rollout.ticket, self.clock.now
        if self.rollouts.pop(ticket, None) is None:
            return
        self.in_flight.change(now, -1)
        self.rollout_seconds += now - rollout.started
        reward = 0.0 if self.draws.group(rollout.prompt).flat else float(ticket & 1)
        if self.reward_seconds:
            outcome = self.pipeline.score(ticket, reward, now)
        else:
            outcome = self.pipeline.complete(ticket, rollout.spans, reward, now)
        if outcome is not Outcome.OPEN:
            self._settle()
            self._go_on()

    def _settle(self) -> None:
        """Stop what the pipeline gave up, and count the queue."""
        now = self.clock.now
        for trajectory in self.pipeline.drain_aborts():
            rollout = self.rollouts.pop(trajectory.ticket, None)
            if rollout is not None:
                engine = self.engines[rollout.engine]
                self.in_flight.change(now, -1)
                engine.stop(now, rollout)
                self.changed.add(engine.index)
                self._schedule(engine)
                if not engine.running:
                    self._mark_idle(engine.index)
        self.queue.change(now, self.pipeline.ready_groups - self.queue.value)
        dropped = self.pipeline.counts.dropped
        if dropped and sum(dropped.values()) - self.dropped > _HOPELESS * self.plan.batch.size:
            worst = max(dropped, key=lambda reason: dropped[reason])
            raise ConfigError(
                f"the plan dropped {_HOPELESS} batches of groups ({worst}) without one trainer step; loosen the "
                "deadline, the staleness bound or zero_variance."
            )

    def _mark_idle(self, index: int) -> None:
        """Say why a generator has nothing to decode."""
        if not self.alive[index]:
            return
        if self.plan.tools.max_turns > 1 and self.pipeline.running(self.names[index]):
            reason = "tools"
        elif self.blocked in _LIMITS:
            reason = "stragglers" if self.pipeline.training is None else "training"
        else:
            reason = self.blocked
        self.accounts[index].mark(self.clock.now, reason)

    def _mark_all_idle(self) -> None:
        for engine in self.engines:
            if not engine.running:
                self._mark_idle(engine.index)

    def _fail(self, index: int) -> None:
        assert self.plan.failures is not None
        now, repair = self.clock.now, self.plan.failures.repair_seconds
        self.alive[index] = self.held_back[index] = False
        self.engines[index].fail(now, repair)
        for ticket in self.pipeline.running(self.names[index]):
            if self.rollouts.pop(ticket, None) is not None:
                self.in_flight.change(now, -1)
        self.pipeline.lose(self.names[index], now)
        self.accounts[index].mark(now, "stragglers")
        self.accounts[index].hold(now, now + repair, "failed")
        self.clock.after(repair, self._repaired, index)
        self._settle()
        self._go_on()

    def _repaired(self, index: int) -> None:
        now, engine = self.clock.now, self.engines[index]
        self.alive[index] = True
        self.pipeline.join(self.names[index], self.synced)
        engine.update(now, self.synced, 0.0, False)
        self.changed.add(index)
        self.clock.after(self.draws.life_time(), self._fail, index)
        self._go_on()
        if not engine.running:
            self._mark_idle(index)

    def _watch_deadline(self) -> None:
        due = self.pipeline.next_deadline
        if due is not None and not self.expiry_due:
            self.expiry_due = True
            self.clock.at(max(due, self.clock.now), self._expire)

    def _expire(self, _: object) -> None:
        self.expiry_due = False
        self.pipeline.expire(self.clock.now)
        self._settle()
        self._go_on()

    def _try_update(self, index: int) -> None:
        """Load the newest weights if the pipeline lets this generator; else remember that it is held back."""
        now, engine = self.clock.now, self.engines[index]
        order = self.pipeline.plan_update(self.names[index])
        self.held_back[index] = bool(order.held_by)
        if order.version is None:
            return
        self.pipeline.update(self.names[index], order.version, now)
        self._settle()
        engine.update(now, order.version, self.sync.transfer, self.sync.recompute_kv)
        self.accounts[index].hold(now, engine.time, "weights")
        self.accounts[index].set_version(now, order.version)
        self._schedule(engine)
        self.changed.add(index)
        self.open = True

    def _closed(self, group: Group, reason: DropReason | None) -> None:
        self.drop_bias.add(group, reason)
        if reason is None:
            self.draws.forget(int(group.prompt.id))
