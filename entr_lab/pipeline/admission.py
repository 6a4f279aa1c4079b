"""What may be dispatched and what may be consumed: modes, the staleness bound, and what happens at it.

One meaning of the bound, everywhere. A trajectory may be used by an update that starts from version `target` iff

    target - v_last <= max_inter    and    v_last - v_first <= max_intra,

so no token of it is staler than max_inter + max_intra. Versions are counted in optimiser steps: a batch that is
trained in `updates_per_batch` = k steps raises the version by k, and its last step starts from target + k - 1, which is
the version that the bound is checked against.

The bound is checked twice. At *dispatch*: a new group is opened only if, with the groups already live consumed
first, it can still be used (`batches_left`). At *consumption*: per trajectory, against the spans that were reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from entr_lab.errors import ConfigError, RangeError, check_range

__all__ = ["Admission", "Mode", "OnUpdate", "Policy", "check_whole"]


def check_whole(name: str, value: int, *, low: int) -> None:
    """Check that a setting is a whole number of at least `low`.

    Raises:
        RangeError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise RangeError(f"{name} must be a whole number, got {value!r}; choose one from {low} on.")
    check_range(name, value, low=low)


class Mode(StrEnum):
    """How generation and training overlap."""

    SYNC = "sync"
    ONE_STEP = "one-step"
    ASYNC = "async"
    EXACT = "exact"


class Policy(StrEnum):
    """What gives way when work would become too stale."""

    WAIT = "wait"
    """The trainer waits for old groups; nothing is given up for staleness."""
    DROP = "drop"
    """The trainer goes on; what became too stale is dropped."""
    REQUEUE = "drop-and-requeue"
    """As drop, and the prompt is generated again, up to `max_attempts` times."""


class OnUpdate(StrEnum):
    """What gives way when new weights would stretch a running trajectory past `max_intra`."""

    HOLD = "hold"
    """The worker keeps its weights, takes no new work, and updates when that trajectory has finished."""
    ABORT = "abort"
    """The worker updates; the trajectory is given up (and restarted under drop-and-requeue)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Bounds and policy; build it with `sync`, `one_step`, `asynchronous` or `exact`.

    Attributes:
        max_inter: largest target - v_last, in versions; `exact` uses it as the value itself.
        max_intra: largest v_last - v_first, in versions; 0 forbids updates inside a trajectory.
        updates_per_batch: optimiser steps that one batch is trained for.
    """

    mode: Mode
    max_inter: int
    max_intra: int
    policy: Policy = Policy.WAIT
    on_update: OnUpdate = OnUpdate.HOLD
    updates_per_batch: int = 1

    def __post_init__(self) -> None:
        check_whole("max_inter", self.max_inter, low=0)
        check_whole("max_intra", self.max_intra, low=0)
        check_whole("updates_per_batch", self.updates_per_batch, low=1)
        if self.max_inter < self.updates_per_batch - 1:
            raise ConfigError(
                f"max_inter = {self.max_inter} can never be met with {self.updates_per_batch} updates per batch, since "
                f"the last of them is {self.updates_per_batch - 1} versions on; raise max_inter to "
                f"{self.updates_per_batch - 1} or lower updates_per_batch to {self.max_inter + 1}."
            )
        if self.mode is Mode.ASYNC and self.max_inter + self.max_intra < self.updates_per_batch:
            raise ConfigError(
                f"async with bounds {self.max_inter} + {self.max_intra} leaves no room to overlap; "
                f"use mode sync, or raise max_inter to {self.updates_per_batch}."
            )
        if self.policy is Policy.WAIT and self.on_update is OnUpdate.ABORT:
            raise ConfigError(
                "policy wait gives nothing up for staleness, but on_update abort does; use hold, or policy drop."
            )
        if self.mode is Mode.EXACT and self.updates_per_batch != 1:
            raise ConfigError("mode exact needs updates_per_batch = 1: with more, one batch has several lags.")

    @classmethod
    def sync(cls, *, updates_per_batch: int = 1) -> Admission:
        """Generate, train, publish, in turn; every token is of the target version."""
        return cls(mode=Mode.SYNC, max_inter=updates_per_batch - 1, max_intra=0, updates_per_batch=updates_per_batch)

    @classmethod
    def one_step(cls, *, updates_per_batch: int = 1) -> Admission:
        """Generate the next batch while this one trains: at most one batch behind, no update inside a trajectory."""
        k = updates_per_batch
        return cls(mode=Mode.ONE_STEP, max_inter=2 * k - 1, max_intra=0, updates_per_batch=k)

    @classmethod
    def asynchronous(
        cls,
        max_inter: int,
        max_intra: int,
        *,
        policy: Policy = Policy.WAIT,
        on_update: OnUpdate = OnUpdate.HOLD,
        updates_per_batch: int = 1,
    ) -> Admission:
        """Generate all the time, inside both bounds."""
        return cls(
            mode=Mode.ASYNC,
            max_inter=max_inter,
            max_intra=max_intra,
            policy=policy,
            on_update=on_update,
            updates_per_batch=updates_per_batch,
        )

    @classmethod
    def exact(cls, inter: int, intra: int) -> Admission:
        """Force both lags, for experiments: the batch for `target` is generated with stored weights.

        Its trajectories run through versions target - inter - intra … target - inter, never before the first
        version of the run, and are used at `target` only. A trajectory that ends before its last planned version
        has a smaller intra and a larger inter lag, with the same sum at its first token.
        """
        return cls(mode=Mode.EXACT, max_inter=inter, max_intra=intra)

    def batches_left(self, version: int, target_version: int, *, optimistic: bool = False) -> int:
        """Return how many batches, from the one at `target_version` on, could still use a token of `version`.

        Args:
            version: v_last of a finished trajectory, or the version that one starts under.
            target_version: the version that the next update starts from.
            optimistic: count on the trajectory living through max_intra more versions.
        """
        room = self.max_inter + version - target_version + 1
        if optimistic:
            room += self.max_intra
        return max(0, room // self.updates_per_batch)

    def oldest_usable(self, target_version: int, *, optimistic: bool = False) -> int:
        """Return the lowest version for which `batches_left` is not 0."""
        oldest = target_version - self.max_inter - 1 + self.updates_per_batch
        return oldest - self.max_intra if optimistic else oldest
