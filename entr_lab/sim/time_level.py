"""The time level: a plan's generators, trainer and weight updates on a virtual clock, around the real protocol.

Every decision (what may be dispatched, when the trainer may step, when a generator may load weights) is the
`Pipeline`'s; this module only says how long things take, and reports. Modes differ by the pipeline's admission alone,
and by whether generators and trainer share the GPUs:

    colocated-sync   all GPUs generate, then all train                admission sync
    split-sync       two pools take turns                             admission sync
    one-step         the next batch is generated while one trains     admission one-step
    async            always on, updates in flight within max_intra    admission async

A weight update holds the trainer and pauses each generator that loads it for the transfer; a generator whose running
trajectories may not be stretched (max_intra) finishes them first and then pays the transfer by itself.
"""

from __future__ import annotations

import gc
import math
from heapq import heappop, heappush, heapreplace
from statistics import fmean

from entr_lab.errors import ConfigError, ProtocolError
from entr_lab.pipeline import Admission, Batch, Outcome, Pipeline, PipelineConfig, Prompt, Reason, Trajectory, Wait
from entr_lab.pipeline.decisions import DropReason
from entr_lab.pipeline.drop_bias import DropBias
from entr_lab.pipeline.records import Group
from entr_lab.sim.clock import VirtualClock
from entr_lab.sim.idle import Account, on_grid
from entr_lab.sim.plan_costs import costs_of
from entr_lab.sim.plan_draws import Draws
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_stats import Area, StalenessTally, TimeResult

__all__ = ["pipeline_config", "simulate"]

_LIMITS = frozenset({Reason.STALENESS, Reason.IN_FLIGHT, Reason.BUFFER_FULL})
_PROMPTS = 512
_HOPELESS = 100
"""Batches of dropped groups, without a step between, after which a run is given up."""


def simulate(plan: Plan, *, steps: int, seed: int = 0, sample: int = 0, timeline: bool = False) -> TimeResult:
    """Run `steps` trainer steps of a plan; the same plan and seed give the same result.

    Args:
        sample: trajectories of each batch to keep for a schedule.
        timeline: keep the stretches of every resource.

    Raises:
        ConfigError: the plan's model does not fit its generators, or its limits drop every group.
        ProtocolError: the plan stopped making progress, which the protocol should never allow.
    """
    return _Run(plan, steps, seed, sample, timeline).run()


def pipeline_config(plan: Plan) -> PipelineConfig:
    """Return the protocol settings of a plan."""
    protocol, k = plan.protocol, plan.batch.updates
    if protocol.mode == "one-step":
        admission = Admission.one_step(updates_per_batch=k)
    elif protocol.mode == "async":
        admission = Admission.asynchronous(
            protocol.max_inter,
            protocol.max_intra,
            policy=protocol.policy,
            on_update=protocol.on_update,
            updates_per_batch=k,
        )
    else:
        admission = Admission.sync(updates_per_batch=k)
    return PipelineConfig(
        admission=admission,
        batch_groups=plan.batch.size,
        group_size=plan.batch.rollouts,
        order=protocol.order,
        drop_zero_variance=protocol.zero_variance > 0,
        deadline=protocol.deadline,
        max_in_flight=protocol.max_in_flight,
        buffer_groups=protocol.buffer_groups,
    )


class _Run:
    """One run of the time level; `simulate` is the public face."""

    def __init__(self, plan: Plan, steps: int, seed: int, sample: int, timeline: bool) -> None:
        self.plan = plan
        self.steps = steps
        self.warm_up = min(steps // 4, 20)
        engine_costs, self.trainer_costs, self.sync = costs_of(plan)
        self.slots = engine_costs.slots
        self.clock = VirtualClock()
        self.draws = Draws(plan, seed)
        self.drop_bias = DropBias()
        self.pipeline = Pipeline(pipeline_config(plan), closed=self._closed)
        self.engines = [Engine(index, engine_costs) for index in range(plan.generators)]
        self.names = [f"generator-{index:04d}" for index in range(plan.generators)]
        self.alive = [True] * plan.generators
        self.held_back = [False] * plan.generators
        # Loads as load · generators + index, smallest first; entries that no longer hold are skipped, and generators
        # whose load has changed since the last feeding are entered anew by it.
        self.loads: list[int] = []
        self.changed = set(range(plan.generators))
        self.accounts = [Account(name, "stragglers", keep_segments=timeline) for name in self.names]
        self.trainer = Account("trainer", Reason.GENERATION, keep_segments=timeline)
        self.rollouts: dict[int, Rollout] = {}
        self.blocked = Reason.NO_PROMPTS
        self.open = True
        self.expiry_due = self.trainer_held = False
        self.synced = self.dropped = 0
        self.warm, self.tally = StalenessTally(), StalenessTally(sample)
        self.published: list[float] = []
        self.trained_tokens: list[int] = []
        self.queue, self.in_flight = Area(), Area()
        self.rollout_seconds = self.running_seconds = 0.0

    def run(self) -> TimeResult:
        """Run to the last step and return the record."""
        for index, name in enumerate(self.names):
            self.pipeline.join(name, 0)
            if self.plan.failures is not None:
                self.clock.after(self.draws.life_time(), self._fail, index)
        self.clock.at(0.0, self._go_on)
        collecting = gc.isenabled()
        gc.disable()  # the records form no cycles, and looking for some takes a fifth of the run
        try:
            self.clock.run()
        finally:
            if collecting:
                gc.enable()
        if len(self.published) < self.steps:
            raise ProtocolError(
                f"the plan stopped after {len(self.published)} of {self.steps} steps ({self.blocked}); this is "
                "a defect of the simulator or of the protocol, please report the plan."
            )
        return self._result()

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
        self._enter_changed()
        while loads:
            load, index = divmod(loads[0], count)
            engine = engines[index]
            if load != engine.load or not self.alive[index]:
                heappop(loads)
                continue
            if load >= self.slots:
                self.blocked = Reason.IN_FLIGHT
                break
            if not self.pipeline.prompts_left:
                self._add_prompts()
            # A few at a time where many run already, which unbalances the loads by a sixteenth at most.
            given = self.pipeline.dispatch(self.names[index], min(1 + load // 16, self.slots - load), now)
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
                self._launch(trajectory, engine, now)
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
            Prompt(str(number), difficulty=fmean(self.draws.group(number)[0]))
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

    def _launch(self, trajectory: Trajectory, engine: Engine, now: float) -> None:
        number = int(self.pipeline.prompt(trajectory.group).id)
        lengths, turns, _ = self.draws.group(number)
        tokens, prompt = lengths[trajectory.index], self.plan.lengths.prompt
        calls = min(turns[trajectory.index], tokens)
        ticket = trajectory.ticket
        rollout = Rollout(ticket, number, tokens, tokens // calls, prompt, prompt, calls, now)
        self.rollouts[ticket] = rollout
        engine.arrive(now, rollout)

    def _schedule(self, engine: Engine) -> None:
        time = engine.next_completion()
        if time < math.inf:
            self.clock.at(max(time, self.clock.now), self._turn_ends, (engine, engine.epoch))

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
        elif self.plan.tools.reward_seconds:
            if self.pipeline.generated(rollout.ticket, rollout.spans, now) is not Outcome.OPEN:
                self._settle()
            self.clock.after(self.plan.tools.reward_seconds, self._finish, rollout)
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
        reward = 0.0 if self.draws.group(rollout.prompt)[2] else float(ticket & 1)
        if self.plan.tools.reward_seconds:
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

    # --- what the trainer does --------------------------------------------------------------------------------------

    def _take(self) -> None:
        if self.pipeline.training is not None or self.trainer_held:
            return
        decision = self.pipeline.take()
        if isinstance(decision, Batch):
            self._train(decision)
        elif isinstance(decision, Wait):
            self.trainer.mark(self.clock.now, decision.reason)

    def _train(self, batch: Batch) -> None:
        now = self.clock.now
        self._settle()
        self.trained_tokens.append((self.warm if batch.step < self.warm_up else self.tally).add(batch))
        context = sum(self._context(int(group.prompt.id)) for group in batch.groups)
        self.trainer.mark(now, "training")
        self.clock.after(self.trainer_costs.step(self.trained_tokens[-1] + context), self._trained, batch)
        self.open = True
        self._feed()
        self._mark_all_idle()

    def _context(self, prompt: int) -> int:
        """Tokens of a group that are trained over without having been sampled: prompts and tool answers."""
        turns = self.draws.group(prompt)[1]
        return len(turns) * self.plan.lengths.prompt + self.plan.tools.tokens * (sum(turns) - len(turns))

    def _trained(self, batch: Batch) -> None:
        now = self.clock.now
        version = batch.target_version + self.plan.batch.updates
        self.pipeline.publish(version, now)
        self.published.append(now)
        self.dropped = sum(self.pipeline.counts.dropped.values())
        if len(self.published) == self.steps:
            self.clock.stop()
            return
        self._settle()
        self.trainer.set_version(now, version)
        if len(self.published) % self.plan.protocol.sync_every:
            self._go_on()
            return
        self.synced, self.trainer_held = version, True
        self.trainer.mark(now, "weights")
        self.clock.after(self.sync.transfer, self._synced)
        for index in range(len(self.engines)):
            if self.alive[index]:
                self._try_update(index)
        self.open = True
        self._feed()
        self._mark_all_idle()

    def _synced(self, _: object) -> None:
        self.trainer_held = False
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

    # --- the record -------------------------------------------------------------------------------------------------

    def _result(self) -> TimeResult:
        plan, now = self.plan, self.clock.now
        begin = self.published[self.warm_up - 1] if self.warm_up else 0.0
        measured = self.published[-1] - begin
        accounts = {account.name: account.close(now) for account in (*self.accounts, self.trainer)}
        decoding = sum(accounts[name].get("generating", 0.0) for name in self.names)
        counts = self.pipeline.counts
        rate = sum(self.trained_tokens[self.warm_up :]) / measured
        return TimeResult(
            plan=plan.name,
            mode=plan.protocol.mode,
            steps=self.steps,
            seconds=on_grid(now),
            warm_up=self.warm_up,
            seconds_per_step=measured / (self.steps - self.warm_up),
            tokens_per_second=rate,
            tokens_per_gpu_second=rate / plan.gpus,
            accounts=accounts,
            generator_busy=decoding / (now * len(self.engines)),
            generator_fill=self.running_seconds / decoding if decoding else 0.0,
            trainer_busy=accounts["trainer"].get("training", 0.0) / now,
            inter=dict(sorted(self.tally.inter.items())),
            intra=dict(sorted(self.tally.intra.items())),
            token_staleness=dict(sorted(self.tally.token.items())),
            queue_mean=self.queue.mean(now),
            queue_max=self.queue.largest,
            in_flight_mean=self.in_flight.mean(now),
            rollout_seconds=self.rollout_seconds / counts.finished,
            rollouts=counts.finished,
            groups_dropped=dict(counts.dropped),
            rollouts_lost=dict(counts.lost),
            drop_bias=tuple(self.drop_bias.report()),
            events=self.clock.fired,
            sample=tuple(self.tally.sample),
            timeline={account.name: tuple(account.segments) for account in (*self.accounts, self.trainer)},
        )
