"""Generators of a steady plan as one fleet, whose completions are forecast together as long as nobody intervenes.

What is decided, and when, is the same as with one event per completion (`Together`): the fleet is only a faster way to
know when the next turns end. It serves plans whose generators have slots for all that the pipeline ever lets run.
While a generator has to finish something before it may load weights, there are engines; then a fleet again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from entr_lab.pipeline import Outcome, PipelineConfig, Trajectory
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Rollout
from entr_lab.sim.time_fleet import Fleet
from entr_lab.sim.time_generators import Generators

__all__ = ["Steady"]


class Steady(Generators):
    """Generators that are a fleet while they can be."""

    def __init__(self, plan: Plan, config: PipelineConfig, seed: int, timeline: bool) -> None:
        super().__init__(plan, config, seed, timeline)
        self.fleet: Fleet | None = None
        self.on_board = [0] * plan.generators
        self.ended = self.look = 0  # entries of the fleet's forecast that have ended; number of the forecast
        self.stale = False
        self.calm, self.patience = 0, 1  # updates since a generator was held back, and how many make a fleet again
        self.arrived: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        most = config.admission.batches_left(0, 0) * config.batch_groups * config.group_size
        self.roomy = self.steady and plan.protocol.sync_every == 1 and self.costs.slots * plan.generators >= most
        if self.roomy:
            self.fleet = Fleet(self.costs, plan.generators, self.prompt_tokens)
            self.balance.on_board = self.on_board

    def mark_all_idle(self) -> None:
        if self.fleet is None:
            super().mark_all_idle()
            return
        for index, load in enumerate(self.on_board):
            if not load:
                self.mark_idle(index)

    # --- orders -----------------------------------------------------------------------------------------------------

    def _launch(self, given: Sequence[Trajectory], picked: Sequence[int], arrivals: dict[int, list[Rollout]]) -> None:
        if self.fleet is None:
            super()._launch(given, picked, arrivals)
            return
        now, on_board, accounts, group = self.clock.now, self.on_board, self.accounts, -1
        engines, lengths, tickets, groups = self.arrived
        count = len(given)
        for index in picked[:count]:
            if not on_board[index]:
                accounts[index].mark(now, "generating")
            on_board[index] += 1
        engines += picked[:count]
        tickets += [trajectory.ticket for trajectory in given]
        groups += [trajectory.group for trajectory in given]
        for trajectory in given:
            if trajectory.group != group:
                group = trajectory.group
                needs = self.draws.group(int(self.pipeline.prompt(group).id)).lengths
                self.missing.setdefault(group, len(needs))
            lengths.append(needs[trajectory.index])
        self.in_flight.change(now, len(given))

    def _feed(self) -> None:
        super()._feed()
        fleet = self.fleet
        if fleet is None or not (self.stale or self.arrived[0]):
            return
        now = self.clock.now
        self._settle_fleet(fleet)
        if self.arrived[0]:
            fleet.arrive(now, *self.arrived)
            self.arrived = ([], [], [], [])
        fleet.look_ahead(now)
        self.stale = False
        self.look += 1
        self._wake(fleet)

    def _settle_fleet(self, fleet: Fleet) -> None:
        fleet.settle(self.ended)
        self.ended = 0

    def _wake(self, fleet: Fleet) -> None:
        """Schedule what is next in the forecast, if anything."""
        if self.ended < len(fleet.coming.times):
            self.clock.at(max(fleet.coming.times[self.ended], self.clock.now), self._fleet_ends, self.look)

    def _update_all(self) -> None:
        fleet = self.fleet
        if fleet is None:
            super()._update_all()
            self.calm = 0 if self.held_back else self.calm + 1
            if self.roomy and self.calm >= self.patience:
                self._come_together()
            return
        pipeline, now, names = self.pipeline, self.clock.now, self.names
        self._settle_fleet(fleet)
        self.stale = True
        if any(order.held_by for order in map(pipeline.plan_update, names)):
            self._break_up(fleet)
            super()._update_all()
            return
        fleet.update(now, self.synced, self.sync.transfer, self.sync.recompute_kv)
        for name, account, until in zip(names, self.accounts, fleet.time.tolist(), strict=True):
            pipeline.update(name, self.synced, now)
            account.hold(now, until, "weights")
            account.set_version(now, self.synced)
        self.balance.changed.update(range(len(names)))
        self.open = True

    def _break_up(self, fleet: Fleet) -> None:
        """Be engines until all have new weights at once."""
        self.fleet = self.balance.on_board = None
        self.calm, self.patience = 0, 2 * self.patience  # coming together costs as much as several updates
        self.look += 1
        for index in fleet.hand_over(self.engines):
            engine = self.engines[index]
            self.rollouts.update((rollout.ticket, rollout) for _, _, rollout in engine.running)
            self._schedule(engine)

    def _come_together(self) -> None:
        """Be a fleet again: all generators have just loaded the same weights."""
        self.fleet = fleet = Fleet(self.costs, len(self.engines), self.prompt_tokens)
        self.on_board[:] = [len(engine.running) for engine in self.engines]
        for engine in self.engines:
            for _, _, rollout in engine.running:
                del self.rollouts[rollout.ticket]
        fleet.take_over(self.engines)
        self.balance.on_board = self.on_board
        self.balance.changed.update(range(len(self.engines)))
        self.stale = True

    # --- turns that end ---------------------------------------------------------------------------------------------

    def _fleet_ends(self, look: int) -> None:
        """The next turns of the forecast end, up to the next event of anybody else."""
        clock, fleet = self.clock, self.fleet
        clock.fired -= 1
        if fleet is None:
            return
        times, first = fleet.coming.times, True
        while look == self.look and self.ended < len(times) and (first or times[self.ended] < clock.next_time):
            self._end_some(fleet, clock.next_time, first)
            first = False
        if look == self.look:
            self._wake(fleet)

    def _end_some(self, fleet: Fleet, limit: float, first: bool) -> None:
        """End turns before `limit`, up to the first that may let the trainer step, and report them together."""
        missing, on_board, coming, begin = self.missing, self.on_board, fleet.coming, self.ended
        engines, groups = coming.engines, coming.groups
        busy = self.trainer_busy
        wanted = 0 if busy else max(self.plan.batch.size - self.pipeline.ready_groups, 1)  # 0: as many as there are
        complete: list[float] = []  # when groups were
        stop = max(bisect_left(coming.times, limit, begin), begin + first)
        for entry in range(begin, stop):
            index, group = engines[entry], groups[entry]
            on_board[index] = load = on_board[index] - 1
            if left := missing[group] - 1:
                missing[group] = left
            else:
                del missing[group]
                complete.append(coming.times[entry])
                if len(complete) == wanted:
                    stop = entry + 1
                    break
            if not load:
                self.clock.now = coming.times[entry]
                self.mark_idle(index)
        self.ended, ended = stop, stop - begin
        times, tickets = coming.times[begin:stop], coming.tickets[begin:stop]
        self.clock.now = times[-1]
        self.clock.fired += ended
        self.balance.changed.update(engines[begin:stop])
        seconds = sum(times) - sum(coming.started[begin:stop])
        self.rollout_seconds += seconds
        self.running_seconds += seconds
        self.in_flight.leave(times)
        rewards = [float(ticket & 1) for ticket in tickets]
        reports = zip(tickets, fleet.spans(begin, stop), rewards, times, strict=True)
        outcomes = self.pipeline.complete_each(reports)
        assert outcomes.count(Outcome.OPEN) == ended - len(complete)
        take = not busy and len(complete) == wanted
        for now in complete[:-1] if take else complete:
            self.queue.change(now, 1)
        if take:
            self._settle()
            self._take()
            if not on_board[index]:  # nor has it been given anything
                self.mark_idle(index)
