"""What the loop is told: of rollouts, of weights, of training, of generators that come and go. Ours."""

from __future__ import annotations

from dataclasses import dataclass

from entr_lab.pipeline import Batch, Trajectory
from entr_lab.real.ports import StepResult
from entr_lab.real.records import Rollout

__all__ = [
    "Broken",
    "Evaluated",
    "Failed",
    "Finished",
    "Gone",
    "Joined",
    "Loaded",
    "Lost",
    "Report",
    "Saved",
    "Trained",
]


@dataclass(frozen=True, slots=True)
class Finished:
    """A rollout is there, its reward too."""

    worker: str
    trajectory: Trajectory
    rollout: Rollout


@dataclass(frozen=True, slots=True)
class Failed:
    """A rollout came to nothing; its generator is well."""

    worker: str
    ticket: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Loaded:
    """The generator samples under `version` from now on."""

    worker: str
    version: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The generator is there, with weights `version`."""

    worker: str
    version: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The generator is dead, and all that it was playing."""

    worker: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Gone:
    """A dead generator did not come back."""

    worker: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Held-out rollouts are there.

    Args:
        worker: who played them.
        rollouts: those that came to an end.
        failed: how many did not.
    """

    worker: str
    rollouts: list[Rollout]
    failed: int


@dataclass(frozen=True, slots=True)
class Trained:
    """A batch is trained and its weights are published."""

    batch: Batch
    result: StepResult


@dataclass(frozen=True, slots=True)
class Saved:
    """The checkpoint that was due is written."""


@dataclass(frozen=True, slots=True)
class Broken:
    """Something failed that the run cannot go on without."""

    error: Exception


Report = Finished | Failed | Loaded | Joined | Lost | Gone | Evaluated | Trained | Saved | Broken
