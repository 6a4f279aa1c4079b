"""What generators report on the virtual clock: turns that end, tools that answer, rewards, failures, deadlines."""

from __future__ import annotations

import math

from entr_lab.pipeline import Outcome, PipelineConfig, Policy
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_together import Together

__all__ = ["Generators"]

_OPEN = Outcome.OPEN


class Generators(Together):
    """All generators of a run, at work."""

    def __init__(self, plan: Plan, config: PipelineConfig, seed: int, timeline: bool) -> None:
        super().__init__(plan, config, seed, timeline)
        self.expiry_due = False
        self.reward_seconds = plan.tools.reward_seconds
        self.steady = _steady(plan)
        if self.steady:
            self.alarm = self._turns_end
        if plan.failures is not None:
            for index in range(plan.generators):
                self.clock.after(self.draws.life_time(), self._fail, index)

    # --- turns that end ---------------------------------------------------------------------------------------------

    def _turn_ends(self, engine: Engine) -> None:
        now = self.clock.now
        if now != engine.alarm:
            self.clock.fired -= 1  # an earlier alarm was set after this one
            return
        if now < engine.due:
            self.clock.fired -= 1
            self._put_off(engine, engine.place)
            return
        engine.alarm = math.inf
        rollout, index = engine.complete(now), engine.index
        self.running_seconds += now - rollout.entered
        self.balance.changed.add(index)
        if rollout.turns > 1 or self.reward_seconds:
            self._wait(rollout)
        elif self._over(rollout, now) is not _OPEN:
            self._settle()
            self._go_on()
        self._after_turn(engine)

    def _over(self, rollout: Rollout, now: float) -> Outcome:
        ticket = rollout.ticket
        del self.rollouts[ticket]
        if left := self.missing[rollout.group] - 1:
            self.missing[rollout.group] = left
        else:
            del self.missing[rollout.group]
        self.in_flight.change(now, -1)
        self.rollout_seconds += now - rollout.started
        return self.pipeline.complete(ticket, rollout.spans, rollout.reward, now)

    # --- tools and rewards ------------------------------------------------------------------------------------------

    def _wait(self, rollout: Rollout) -> None:
        """A rollout waits for a tool, or for its reward."""
        if rollout.turns > 1:
            self.clock.after(self.draws.tool_wait(), self._tool_answers, rollout)
            return
        if self.pipeline.generated(rollout.ticket, rollout.spans, self.clock.now) is not _OPEN:
            self._settle()
        self.clock.after(self.reward_seconds, self._score, rollout)

    def _tool_answers(self, rollout: Rollout) -> None:
        if rollout.ticket not in self.rollouts:
            return
        now, answer = self.clock.now, self.plan.tools.tokens
        done = rollout.spans[-1].stop
        rollout.turns -= 1
        rollout.left = (rollout.tokens - done) // rollout.turns
        rollout.answers += answer
        rollout.context, rollout.prefill = self.prompt_tokens + done + rollout.answers, answer
        engine = self.engines[rollout.engine]
        if not engine.running:
            self.accounts[engine.index].mark(now, "generating")
        engine.arrive(now, rollout)
        self.balance.changed.add(engine.index)
        self._schedule(engine)

    def _score(self, rollout: Rollout) -> None:
        ticket, now = rollout.ticket, self.clock.now
        if self.rollouts.pop(ticket, None) is None:
            return
        self.in_flight.change(now, -1)
        self.rollout_seconds += now - rollout.started
        if self.pipeline.score(ticket, rollout.reward, now) is not _OPEN:
            self._settle()
            self._go_on()

    # --- what goes wrong --------------------------------------------------------------------------------------------

    def _fail(self, index: int) -> None:
        assert self.plan.failures is not None
        now, repair = self.clock.now, self.plan.failures.repair_seconds
        self.held_back.discard(index)
        self.engines[index].fail(now, repair)
        self.engines[index].due = math.inf
        self.balance.away.add(index)
        self.balance.changed.add(index)
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
        self.balance.away.remove(index)
        self.pipeline.join(self.names[index], self.synced)
        engine.update(now, self.synced, 0.0, False)
        self.balance.changed.add(index)
        self.clock.after(self.draws.life_time(), self._fail, index)
        self._go_on()
        if not engine.running:
            self.mark_idle(index)

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


def _steady(plan: Plan) -> bool:
    """Whether every rollout is one turn, none is ever lost, and finished groups make room for none before a step."""
    protocol = plan.protocol
    lost = plan.failures is not None or protocol.deadline is not None or protocol.policy is not Policy.WAIT
    waits = plan.tools.max_turns > 1 or plan.tools.reward_seconds > 0
    return not (lost or waits or protocol.zero_variance or protocol.max_in_flight is not None)
