"""What the pipeline has generators do, on the virtual clock: start rollouts, stop them, load weights.

What may be dispatched, and when weights may be loaded, is the pipeline's decision; here is when it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from entr_lab.errors import ConfigError
from entr_lab.pipeline import PipelineConfig, Prompt, Reason, Trajectory, Wait
from entr_lab.sim.plan_draws import GroupDraw
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_pool import Pool

__all__ = ["Orders"]

_PROMPTS = 512
_AHEAD = 3
"""Prompts that are there before rollouts are asked for: a group's worth of them begins two groups at most."""
_HOPELESS = 100
"""Batches of dropped groups, without a step between, after which a run is given up."""


class Orders(Pool):
    """Generators under orders; `_turn_ends` is where their reports come in, `_take` where a trainer does."""

    def __init__(self, plan: Plan, config: PipelineConfig, seed: int, timeline: bool) -> None:
        super().__init__(plan, config, seed, timeline)
        self.alarm = self._turn_ends
        self.open = True
        self.dropped = 0
        self.prompt_tokens = plan.lengths.prompt
        self.missing: dict[int, int] = {}  # unfinished rollouts of the groups that were begun

    def _turn_ends(self, engine: Engine) -> None:
        """The first of an engine's running sequences ends its turn, if its alarm is still true."""
        raise NotImplementedError

    def _take(self) -> None:
        """Let the trainer take a batch if it is free and there is one; without a trainer, nothing happens."""

    def _watch_deadline(self) -> None:
        """See to it that groups past their deadline are settled."""

    def _go_on(self, _: object = None) -> None:
        """Something may have become possible: feed the generators and the trainer."""
        self.open = True
        self._feed()
        self._take()

    def _feed(self) -> None:
        """Give rollouts to the least loaded generators until the pipeline or the slots say no.

        Each is asked for in the order of the loads. Where weights differ, the first of a group is asked for alone,
        since the answer may be no; the others follow together.
        """
        pipeline, balance, names, now = self.pipeline, self.balance, self.names, self.clock.now
        others = self.plan.batch.rollouts - 1
        uniform = self.synced == pipeline.version and not self.held_back
        arrivals: dict[int, list[Rollout]] = {}
        alone = True
        while self._anything_to_start():
            if balance.changed:
                self._arrive(arrivals)  # so that loads are counted with all that was given
            picked = balance.pick(1 if alone else others)
            if not picked:
                if balance.full:
                    self.blocked = Reason.IN_FLIGHT
                break
            if uniform or not alone:
                if alone and others:
                    picked += balance.pick(others)
                given = pipeline.dispatch_each([names[index] for index in picked], now)
                uniform = uniform and bool(given)
            else:
                answer = pipeline.dispatch(names[picked[0]], len(picked), now)
                if isinstance(answer, Wait):
                    balance.give_back(picked)
                    if answer.reason is not Reason.WORKER_VERSION:
                        self.blocked, self.open = answer.reason, False
                        break
                    self._arrive(arrivals)
                    balance.close(picked[0])
                    self._try_update(picked[0])
                    continue
                given = answer
            if len(given) < len(picked):
                balance.give_back(picked[len(given) :])
            self._launch(given, picked, arrivals)
            alone = uniform or not alone or not (others and given)
        self._arrive(arrivals)
        for index in arrivals:
            self._schedule(self.engines[index])
        if self.plan.protocol.deadline is not None:
            self._watch_deadline()

    def _arrive(self, arrivals: dict[int, list[Rollout]]) -> None:
        """Let the generators have what was given to them."""
        now = self.clock.now
        for index, rollouts in arrivals.items():
            if rollouts:
                engine = self.engines[index]
                if not engine.running:
                    self.accounts[index].mark(now, "generating")
                engine.arrive_each(now, rollouts)
                rollouts.clear()

    def _anything_to_start(self) -> bool:
        """Ask the pipeline before the generators, which spares those the question in most cases.

        One with old weights has to be asked: it may learn that it has to update first.
        """
        pipeline = self.pipeline
        if pipeline.prompts_left < _AHEAD:
            self._add_prompts()
        reason = pipeline.closed_for
        if reason is None or self.synced != pipeline.version or self.held_back:
            return True
        self.blocked, self.open = reason, False
        return False

    def _add_prompts(self) -> None:
        """Add prompts; the difficulty of one is the mean length (tokens) that its rollouts ask for."""
        first = self.pipeline.counts.prompts
        self.pipeline.add_prompts(
            Prompt(str(number), difficulty=self.draws.group(number).mean) for number in range(first, first + _PROMPTS)
        )

    def _launch(self, given: Sequence[Trajectory], picked: Sequence[int], arrivals: dict[int, list[Rollout]]) -> None:
        """Put what was given on its way to the generators that were picked."""
        now, prompt, rollouts = self.clock.now, self.prompt_tokens, self.rollouts
        group, needs = -1, GroupDraw()
        for trajectory, index in zip(given, picked, strict=False):
            if trajectory.group != group:
                group = trajectory.group
                needs = self.draws.group(int(self.pipeline.prompt(group).id))
                lengths, turns, flat = needs.lengths, needs.turns, needs.flat
                self.missing.setdefault(group, len(lengths))
            ticket, rank = trajectory.ticket, trajectory.index
            rollouts[ticket] = rollout = Rollout(
                ticket, group, lengths[rank], turns[rank], prompt, now, 0.0 if flat else float(ticket & 1)
            )
            if index in arrivals:
                arrivals[index].append(rollout)
            else:
                arrivals[index] = [rollout]
        self.in_flight.change(now, len(given))

    def _schedule(self, engine: Engine) -> None:
        """See to it that an event fires when the next completion of `engine` is due, whatever has changed in it.

        An alarm that is early is put off when it fires, so that a completion that is delayed again and again (by
        arrivals, by updates) costs one event more and not one for each delay.
        """
        clock = self.clock
        engine.due = due = engine.next_completion()
        engine.place = place = clock.reserve()
        if due < engine.alarm:
            engine.alarm = alarm = due if due > clock.now else clock.now
            clock.at(alarm, self.alarm, engine, place)

    def _settle(self) -> None:
        """Stop what the pipeline gave up, and count the queue."""
        now = self.clock.now
        for trajectory in self.pipeline.drain_aborts():
            rollout = self.rollouts.pop(trajectory.ticket, None)
            if rollout is not None:
                self.in_flight.change(now, -1)
                self._stop(rollout)
        self.queue.change(now, self.pipeline.ready_groups - self.queue.value)
        dropped = self.pipeline.counts.dropped
        if dropped and sum(dropped.values()) - self.dropped > _HOPELESS * self.plan.batch.size:
            worst = max(dropped, key=lambda reason: dropped[reason])
            raise ConfigError(
                f"the plan dropped {_HOPELESS} batches of groups ({worst}) without one trainer step; loosen the "
                "deadline, the staleness bound or zero_variance."
            )

    def _stop(self, rollout: Rollout) -> None:
        engine = self.engines[rollout.engine]
        engine.stop(self.clock.now, rollout)
        self.balance.changed.add(engine.index)
        self._schedule(engine)
        if not engine.running:
            self.mark_idle(engine.index)

    def _update_all(self) -> None:
        """Have all generators that are up load the newest weights, as far as the pipeline lets them."""
        for index in range(len(self.engines)):
            if index not in self.balance.away:
                self._try_update(index)
        self.open = True

    def _try_update(self, index: int) -> None:
        """Load the newest weights if the pipeline lets this generator; else remember that it is held back."""
        now, engine = self.clock.now, self.engines[index]
        order = self.pipeline.plan_update(self.names[index])
        if order.held_by:
            self.held_back.add(index)
        else:
            self.held_back.discard(index)
        if order.version is None:
            return
        self.pipeline.update(self.names[index], order.version, now)
        if order.aborts:
            self._settle()
        engine.update(now, order.version, self.sync.transfer, self.sync.recompute_kv)
        self.accounts[index].hold(now, engine.time, "weights")
        self.accounts[index].set_version(now, order.version)
        self._schedule(engine)
        self.balance.changed.add(index)
        self.open = True
