"""The settings of one pipeline: sizes, limits, and what to do with incomplete or uninformative groups."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from entr_lab.errors import ConfigError, check_range
from entr_lab.pipeline.admission import Admission, Mode, OnUpdate, Policy, check_whole

__all__ = ["Order", "PipelineConfig"]


class Order(StrEnum):
    """Which finished groups a batch takes first; ties go to the group that was finished first."""

    FIFO = "fifo"
    FRESHEST = "freshest-first"
    OLDEST = "oldest-first"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """Settings of a `Pipeline`.

    Attributes:
        admission: modes and bounds.
        batch_groups: prompt groups per training batch.
        group_size: rollouts per prompt.
        min_rollouts: a group that lost members is used with at least this many; default all of them.
        order: which finished groups a batch takes first.
        drop_zero_variance: drop groups whose rewards are all equal (their advantages are zero).
        deadline: seconds from the opening of a group until it is settled with what it has; None waits for ever.
        max_in_flight: most groups open (dispatched, not finished) at a time; None leaves it to the bound.
        buffer_groups: most groups open or finished and not yet taken; None leaves it to the bound.
        max_attempts: most times that a rollout or, under drop-and-requeue, a prompt is started.
        train_last_partial: train on the incomplete batch at the end of the data, else drop it.
        first_version: the weight version that the run starts from.
    """

    admission: Admission
    batch_groups: int
    group_size: int
    min_rollouts: int | None = None
    order: Order = Order.FIFO
    drop_zero_variance: bool = False
    deadline: float | None = None
    max_in_flight: int | None = None
    buffer_groups: int | None = None
    max_attempts: int = 3
    train_last_partial: bool = True
    first_version: int = 0

    def __post_init__(self) -> None:
        check_whole("batch_groups", self.batch_groups, low=1)
        check_whole("group_size", self.group_size, low=1)
        check_whole("max_attempts", self.max_attempts, low=1)
        check_whole("first_version", self.first_version, low=0)
        check_range("min_rollouts", self.needed, low=1, high=self.group_size)
        if self.deadline is not None:
            check_range("deadline", self.deadline, low=0, low_open=True)
        if self.max_in_flight is not None:
            check_whole("max_in_flight", self.max_in_flight, low=1)
        if self.buffer_groups is not None and self.buffer_groups < self.batch_groups:
            raise ConfigError(
                f"buffer_groups = {self.buffer_groups} cannot hold one batch of {self.batch_groups} groups, so no step "
                f"could ever start; raise buffer_groups to {self.batch_groups}."
            )
        if self.drop_zero_variance and self.group_size == 1:
            raise ConfigError("drop_zero_variance drops every group of size 1; raise group_size to 2 or turn it off.")
        if self.order is Order.CUSTOM and self.admission.mode is Mode.EXACT:
            raise ConfigError("mode exact fixes which group a batch takes; use order fifo with it.")

    @property
    def needed(self) -> int:
        """Fewest finished rollouts that make a usable group."""
        return self.group_size if self.min_rollouts is None else self.min_rollouts

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON data; `from_json` is the inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PipelineConfig:
        """Rebuild settings from `to_json` data.

        Raises:
            ConfigError: a key is missing or unknown, or a value is outside its bound.
        """
        try:
            admission = dict(data["admission"])
            for key, kind in (("mode", Mode), ("policy", Policy), ("on_update", OnUpdate)):
                admission[key] = kind(admission[key])
            fields = {**data, "admission": Admission(**admission), "order": Order(data["order"])}
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"pipeline settings cannot be read ({error}); write them with to_json().") from error
