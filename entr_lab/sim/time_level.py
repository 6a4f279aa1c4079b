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

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, Batch, PipelineConfig, Reason, Wait
from entr_lab.sim.idle import Account, on_grid
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.time_stats import StalenessTally, TimeResult
from entr_lab.sim.time_steady import Steady

__all__ = ["pipeline_config", "simulate"]


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


class _Run(Steady):
    """One run of the time level: generators and a trainer; `simulate` is the public face."""

    def __init__(self, plan: Plan, steps: int, seed: int, sample: int, timeline: bool) -> None:
        super().__init__(plan, pipeline_config(plan), seed, timeline)
        self.steps = steps
        self.warm_up = min(steps // 4, 20)
        self.trainer = Account("trainer", Reason.GENERATION, keep_segments=timeline)
        self.trainer_held = False
        self.warm, self.tally = StalenessTally(), StalenessTally(sample)
        self.published: list[float] = []
        self.trained_tokens: list[int] = []

    def run(self) -> TimeResult:
        """Run to the last step and return the record."""
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

    # --- what the trainer does --------------------------------------------------------------------------------------

    @property
    def trainer_busy(self) -> bool:
        return self.trainer_held or self.pipeline.training is not None

    def _take(self) -> None:
        if self.trainer_busy:
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
        self.mark_all_idle()

    def _context(self, prompt: int) -> int:
        """Tokens of a group that are trained over without having been sampled: prompts and tool answers."""
        turns = self.draws.group(prompt).turns
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
        self._update_all()
        self._feed()
        self.mark_all_idle()

    def _synced(self, _: object) -> None:
        self.trainer_held = False
        self._go_on()

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
