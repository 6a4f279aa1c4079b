"""What a plan is: everything that the time level needs to know, section by section, as a user writes it in TOML.

`entr_lab.sim.plan_config` builds plans; it refuses what cannot run.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from entr_lab.pipeline.admission import OnUpdate, Policy
from entr_lab.pipeline.config import Order
from entr_lab.sim.lengths import Empirical, Fixed, LengthLaw, LogNormal, ParetoTail, Workload

__all__ = ["Baseline", "Batch", "Costs", "Failures", "Hardware", "Lengths", "Plan", "Protocol", "Published", "Tools"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Hardware(_Section):
    """Which chips and which model; costs follow from `entr_lab.sim.plan_hardware`."""

    gpu: str
    model: str
    forward_passes: int = Field(default=0, ge=0, le=4)
    """Passes of the trainer beside the update: old log-probs, a reference."""
    decode_scale: float = Field(default=1.0, gt=0)
    """Measured over predicted time of generation, from a synchronous run of the user's."""
    trainer_scale: float = Field(default=1.0, gt=0)
    """The same for the trainer's step."""


class Costs(_Section):
    """Measured costs, in seconds, in place of `hardware`."""

    decode_fixed: float = Field(ge=0)
    decode_per_sequence: float = Field(ge=0)
    decode_per_context_token: float = Field(default=0.0, ge=0)
    prefill_per_token: float = Field(default=0.0, ge=0)
    slots: int = Field(ge=1)
    trainer_fixed: float = Field(ge=0)
    trainer_per_token: float = Field(ge=0)
    """On one trainer GPU; divided by their number."""
    transfer: float = Field(ge=0)


class Lengths(_Section):
    """Response lengths, in tokens."""

    kind: Literal["fixed", "log-normal", "pareto", "empirical"] = "log-normal"
    mean: float = Field(default=1000.0, ge=1)
    cv: float = Field(default=1.0, ge=0, le=20)
    tail: float = Field(default=2.0, gt=1)
    values: tuple[float, ...] = ()
    cap: int = Field(ge=1)
    group_correlation: float = Field(default=0.3, ge=0, lt=1)
    prompt: int = Field(default=0, ge=0)

    def law(self) -> LengthLaw:
        """Return the distribution that `kind` names."""
        if self.kind == "fixed":
            return Fixed(self.mean)
        if self.kind == "log-normal":
            return LogNormal(self.mean, self.cv)
        if self.kind == "pareto":
            return ParetoTail(self.mean, self.tail)
        return Empirical(self.values)


class Tools(_Section):
    """Turns, and what a tool call between two of them costs; rewards."""

    turns: float = Field(default=1.0, ge=1)
    max_turns: int = Field(default=1, ge=1)
    seconds: float = Field(default=0.0, ge=0)
    seconds_cv: float = Field(default=1.0, ge=0, le=20)
    tokens: int = Field(default=0, ge=0)
    """Tokens that a tool's answer adds to the context."""
    reward_seconds: float = Field(default=0.0, ge=0)


class Batch(_Section):
    """One training batch, and how many optimiser steps it is trained for."""

    groups: int | None = Field(default=None, ge=1)
    """Prompt groups; or give `trajectories`, a multiple of `rollouts`."""
    trajectories: int | None = Field(default=None, ge=1)
    rollouts: int = Field(ge=1)
    updates: int = Field(default=1, ge=1)

    @property
    def size(self) -> int:
        """Prompt groups of a batch."""
        if self.groups is not None:
            return self.groups
        return (self.trajectories or self.rollouts) // self.rollouts


class Protocol(_Section):
    """How generation and training overlap, and within which bound; see docs/pipeline.md for its meaning."""

    mode: Literal["colocated-sync", "split-sync", "one-step", "async"] = "async"
    max_inter: int = Field(default=4, ge=0)
    max_intra: int = Field(default=4, ge=0)
    policy: Policy = Policy.WAIT
    on_update: OnUpdate = OnUpdate.HOLD
    order: Order = Order.FIFO
    max_in_flight: int | None = Field(default=None, ge=1)
    buffer_groups: int | None = Field(default=None, ge=1)
    deadline: float | None = Field(default=None, gt=0)
    zero_variance: float = Field(default=0.0, ge=0, lt=1)
    """Share of groups whose rewards are all equal; they are dropped before training."""
    recompute_kv: bool = True
    sync_every: int = Field(default=1, ge=1)
    """Generators receive every so many batches' weights."""


class Failures(_Section):
    """Generators fail at random: mean time between failures of one, and how long it stays away (s)."""

    mean_seconds: float = Field(gt=0)
    repair_seconds: float = Field(ge=0)


class Baseline(_Section):
    """How the synchronous twin of an asynchronous plan differs from it, beside its mode."""

    mode: Literal["colocated-sync", "split-sync"] = "colocated-sync"
    tensor_parallel: int | None = Field(default=None, ge=1)
    forward_passes: int | None = Field(default=None, ge=0, le=4)
    groups: int | None = Field(default=None, ge=1)


class Published(_Section):
    """What somebody measured, to be shown beside the prediction under its own label; seconds are per `groups`."""

    source: str
    given: str
    """Inputs of the plan that the source gives."""
    assumed: str
    """Inputs that it does not give, and that are assumptions here."""
    groups: int | None = Field(default=None, ge=1)
    """Groups of the published step, if it is not the plan's batch."""
    sync_seconds: float | None = Field(default=None, gt=0)
    sync_generation_seconds: float | None = Field(default=None, gt=0)
    sync_training_seconds: float | None = Field(default=None, gt=0)
    async_seconds: float | None = Field(default=None, gt=0)
    speedup: float | None = Field(default=None, gt=0)
    speedup_high: float | None = Field(default=None, gt=0)
    inter: int | None = Field(default=None, ge=0)
    intra: int | None = Field(default=None, ge=0)


class Plan(_Section):
    """A plan; build it with `parse_plan` or `read_plan`, which check that it can run."""

    name: str = "plan"
    gpus: int = Field(ge=1)
    generator_gpus: int = Field(ge=0)
    tensor_parallel: int = Field(default=1, ge=1)
    hardware: Hardware | None = None
    costs: Costs | None = None
    lengths: Lengths
    tools: Tools = Tools()
    batch: Batch
    protocol: Protocol = Protocol()
    failures: Failures | None = None
    baseline: Baseline = Baseline()
    published: Published | None = None

    @property
    def colocated(self) -> bool:
        """Whether generators and trainer share the GPUs in turn."""
        return self.protocol.mode == "colocated-sync"

    @property
    def generators(self) -> int:
        """Number of engines."""
        return (self.gpus if self.colocated else self.generator_gpus) // self.tensor_parallel

    @property
    def trainer_gpus(self) -> int:
        """GPUs that train."""
        return self.gpus if self.colocated else self.gpus - self.generator_gpus

    def workload(self) -> Workload:
        """Return the distribution of what a group asks for."""
        return Workload(
            self.lengths.law(), self.lengths.cap, self.lengths.group_correlation, self.tools.turns, self.tools.max_turns
        )
