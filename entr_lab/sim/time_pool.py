"""The generators of a plan as resources: engines, loads, accounts of idleness.

No decision is taken here; `entr_lab.sim.time_generators` asks the pipeline for those.
"""

from __future__ import annotations

from entr_lab.pipeline import Pipeline, PipelineConfig, Reason
from entr_lab.pipeline.decisions import DropReason
from entr_lab.pipeline.drop_bias import DropBias
from entr_lab.pipeline.records import Group
from entr_lab.sim.clock import VirtualClock
from entr_lab.sim.idle import Account
from entr_lab.sim.plan_costs import costs_of
from entr_lab.sim.plan_draws import Draws
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_balance import Balance
from entr_lab.sim.time_stats import Area

__all__ = ["Pool"]

_LIMITS = frozenset({Reason.STALENESS, Reason.IN_FLIGHT, Reason.BUFFER_FULL})


class Pool:
    """The generators of a run with the pipeline and the clock.

    Args:
        plan: the plan.
        config: settings of its pipeline.
        seed: seed of everything random.
        timeline: keep the stretches of every account.
    """

    def __init__(self, plan: Plan, config: PipelineConfig, seed: int, timeline: bool) -> None:
        self.plan = plan
        self.costs, self.trainer_costs, self.sync = costs_of(plan)
        self.clock = VirtualClock()
        self.draws = Draws(plan, seed)
        self.drop_bias = DropBias()
        self.pipeline = Pipeline(config, closed=self._closed)
        self.engines = [Engine(index, self.costs) for index in range(plan.generators)]
        self.names = [f"generator-{index:04d}" for index in range(plan.generators)]
        self.held_back: set[int] = set()  # those that finish something before they may load weights
        self.balance = Balance(self.engines, self.costs.slots)
        self.accounts = [Account(name, "stragglers", keep_segments=timeline) for name in self.names]
        self.rollouts: dict[int, Rollout] = {}
        self.blocked = Reason.NO_PROMPTS
        self.synced = 0
        self.queue, self.in_flight = Area(), Area()
        self.rollout_seconds = self.running_seconds = 0.0
        for name in self.names:
            self.pipeline.join(name, 0)

    def mark_idle(self, index: int) -> None:
        """Say why a generator has nothing to decode."""
        if index in self.balance.away:
            return
        if self.plan.tools.max_turns > 1 and self.pipeline.running(self.names[index]):
            reason = "tools"
        elif self.blocked in _LIMITS:
            reason = "stragglers" if self.pipeline.training is None else "training"
        else:
            reason = self.blocked
        self.accounts[index].mark(self.clock.now, reason)

    def mark_all_idle(self) -> None:
        """Say it of all that have nothing to decode."""
        for engine in self.engines:
            if not engine.running:
                self.mark_idle(engine.index)

    def _closed(self, group: Group, reason: DropReason | None) -> None:
        self.drop_bias.add(group, reason)
        if reason is None:
            self.draws.forget(int(group.prompt.id))
