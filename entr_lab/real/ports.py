"""What the loop needs of a trainer and of a generator; actors, plain objects and the tests' fakes all have it. Ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from entr_lab.real.episode import SamplesTokens
from entr_lab.real.proof import Proof
from entr_lab.real.records import Rollout
from entr_lab.real.trainer import TrainStep
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["GeneratorPort", "StepResult", "TrainerPort", "TrainerState"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """One batch, trained and published.

    Args:
        train: what the update did.
        manifest: of the weights that came out of it.
        attribution: numbers of `ATTRIBUTION_DOCS`; empty where the step had no probe.
    """

    train: TrainStep
    manifest: WeightManifest
    attribution: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a checkpoint keeps of the trainer: see `Trainer.state`, and the random states as text."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    counters: dict[str, int]
    random: dict[str, str]


class TrainerPort(Protocol):
    """The trainer as the loop sees it; one call at a time, every failure an `EntrLabError`."""

    async def publish(self) -> WeightManifest:
        """Make the current weights available to generators."""

    async def step(self, groups: Sequence[Sequence[Rollout]], target_version: int, probe: bool) -> StepResult:
        """Train on one batch and publish; with `probe`, split δ on some of its rollouts first."""

    async def release(self, manifest: WeightManifest) -> None:
        """Free what a published version holds; nobody will load it any more."""

    async def state(self) -> TrainerState:
        """Return a copy of all that a resume needs."""


class GeneratorPort(SamplesTokens, Protocol):
    """A generator as the loop sees it."""

    async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> Proof | None:
        """Load and prove published weights; running requests go on."""

    async def health(self) -> dict[str, Any]:
        """Answer, or raise `EngineError` where the engine is dead."""

    async def revive(self, manifest: WeightManifest) -> Proof | None:
        """Come back from the dead with these weights."""
