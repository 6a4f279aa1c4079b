"""What the pipeline answers: train on this batch, update these weights, wait (and why), done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from entr_lab.pipeline.records import Group
from entr_lab.pipeline.versions import token_staleness

__all__ = ["WAIT", "Batch", "Done", "DropReason", "LossReason", "Outcome", "Reason", "UpdatePlan", "Wait"]


class Reason(StrEnum):
    """Why a worker or the trainer has to wait; each names the event that ends the wait."""

    TRAINING = "training"
    """The trainer has a batch; until it publishes, no other batch."""
    GENERATION = "generation"
    """Too few finished groups for a batch; more are coming."""
    OLD_GROUPS = "old-groups"
    """A batch is there, but stepping now would make unfinished groups too stale (policy wait)."""
    STALENESS = "staleness"
    """A group opened now could not be used inside the bound; the trainer has to step first."""
    WORKER_VERSION = "worker-version"
    """This worker has to load newer weights before it gets new work."""
    UNPUBLISHED = "unpublished"
    """Mode exact: the versions that the next group needs are not all there yet."""
    IN_FLIGHT = "in-flight"
    """`max_in_flight` groups are open."""
    BUFFER_FULL = "buffer-full"
    """`buffer_groups` groups are open or finished."""
    NO_SLOTS = "no-slots"
    """The worker asked for nothing."""
    NO_PROMPTS = "no-prompts"
    """The driver has to add prompts, or say that there are no more."""
    EXHAUSTED = "exhausted"
    """No prompts are left; the last groups are being finished or trained."""
    NO_WORKERS = "no-workers"
    """Work is left and no worker is alive: without a new worker this never ends."""


class DropReason(StrEnum):
    """Why a group was given up."""

    STALE = "stale"
    STRAGGLER = "straggler"
    ZERO_VARIANCE = "zero-variance"
    TOO_FEW = "too-few"
    END_OF_DATA = "end-of-data"


class LossReason(StrEnum):
    """Why one start of a rollout came to nothing."""

    WORKER_LOST = "worker-lost"
    FAILED = "failed"
    INTRA = "intra"
    STALE = "stale"
    GROUP_CLOSED = "group-closed"


class Outcome(StrEnum):
    """What a reported rollout did."""

    OPEN = "open"
    """Counted; its group is not complete yet."""
    READY = "ready"
    """Counted; its group is complete and can be taken."""
    DROPPED = "dropped"
    """Its group was given up by this."""
    RESTARTED = "restarted"
    """It will be started again."""
    LATE = "late"
    """Nobody waits for it any more (a lost worker, a deadline, a duplicate); ignored and counted."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now, and why."""

    reason: Reason


WAIT = {reason: Wait(reason) for reason in Reason}
"""One `Wait` per reason: the answer is given millions of times."""


@dataclass(frozen=True, slots=True)
class Done:
    """Every prompt was trained or dropped; nothing is left."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Train on these groups, starting from `target_version`, then publish `target_version + updates_per_batch`.

    Attributes:
        step: number of the batch, from 0.
        last: it is the incomplete batch at the end of the data.
    """

    step: int
    target_version: int
    groups: tuple[Group, ...]
    last: bool = False

    def staleness(self) -> dict[int, int]:
        """Return `{target - version: tokens}` over all tokens of the batch."""
        return token_staleness((t.spans for g in self.groups for t in g.done), self.target_version)


class UpdatePlan(NamedTuple):
    """What a worker should do about newer weights.

    Attributes:
        version: load this version now; None: keep the present weights.
        held_by: tickets that hold the update back (`on_update` hold).
        aborts: tickets that loading will give up (`on_update` abort).
    """

    version: int | None
    held_by: tuple[int, ...] = ()
    aborts: tuple[int, ...] = ()
