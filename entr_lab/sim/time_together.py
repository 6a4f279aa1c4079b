"""Turns that end, one by one or, in a steady plan, as many together as can be known to matter to nobody else."""

from __future__ import annotations

import math

from entr_lab.pipeline import Outcome
from entr_lab.pipeline.rollouts import Report
from entr_lab.sim.service import Engine
from entr_lab.sim.time_orders import Orders

__all__ = ["Together"]


_OPEN, _READY = Outcome.OPEN, Outcome.READY


class Together(Orders):
    """Generators whose turns end; `_turn_ends` takes them one by one."""

    @property
    def trainer_busy(self) -> bool:
        """Whether a finished batch could not be taken now; without a trainer, never."""
        return False

    def _after_turn(self, engine: Engine) -> None:
        if engine.index in self.held_back:
            self._try_update(engine.index)
        if self.open:
            self._feed()
        if not engine.running:
            self.mark_idle(engine.index)
        elif engine.alarm == math.inf:  # nothing has scheduled it
            self._put_off(engine)

    def _put_off(self, engine: Engine, place: int = 0) -> None:
        """Set the alarm of an engine that has none to the date of its next completion, if any."""
        now, due = self.clock.now, engine.due
        engine.alarm = due = due if due > now else now
        if due < math.inf:
            self.clock.at(due, self.alarm, engine, place)

    def _turns_end(self, engine: Engine) -> None:
        """The first of an engine's running sequences ends its turn, and those of other engines that come next.

        While no rollout may be started, nothing comes of one that ends, except by completing its group; and of that
        nothing while the trainer is busy. So the engines go on with the turns that end next, and all are reported by
        one call.
        """
        if self.open:
            self._turn_ends(engine)
            return
        clock, alarm, missing, held_back = self.clock, self.alarm, self.missing, self.held_back
        busy = self.trainer_busy and self.synced == self.pipeline.version
        reports: list[Report] = []
        seconds, changed = 0.0, set[int]()
        at: Engine | None = engine
        while at is not None:
            now, due, place = clock.now, at.due, 0
            if now == at.alarm:
                if now < due:
                    place = at.place  # an early alarm is put off
                    clock.fired -= 1
                else:
                    rollout, index = at.complete(now), at.index
                    due = at.due
                    seconds += now - rollout.started
                    reports.append((rollout.ticket, rollout.spans, rollout.reward, now))
                    changed.add(index)
                    if left := missing[rollout.group] - 1:
                        missing[rollout.group] = left
                    else:
                        del missing[rollout.group]
                    if index in held_back or not (left or busy):
                        at.alarm = math.inf
                        break
                    if not at.running:
                        self.mark_idle(index)
                if due < math.inf:
                    at.alarm = due = due if due > now else now
                    at = clock.swap(due, alarm, at, place)
                    continue
                at.alarm = math.inf
            else:
                clock.fired -= 1
            at = clock.take(alarm)
        self.balance.changed |= changed
        self.rollout_seconds += seconds
        self.running_seconds += seconds
        if reports:
            self._report(reports, busy)
        if at is not None:
            self._after_turn(at)

    def _report(self, reports: list[Report], busy: bool) -> None:
        rollouts = self.rollouts
        for ticket, _, _, _ in reports:
            del rollouts[ticket]
        self.in_flight.leave([now for _, _, _, now in reports])
        calm = True
        for position, outcome in enumerate(self.pipeline.complete_each(reports)):
            if outcome is _OPEN:
                continue
            if outcome is _READY and busy:
                self.queue.change(reports[position][3], 1)
            else:
                calm = False
        if calm:
            return
        self._settle()
        if self.synced == self.pipeline.version and not self.held_back:
            self._take()  # what ended makes room for no generator whose weights are new
        else:
            self._go_on()
