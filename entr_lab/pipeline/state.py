"""The whole mutable state of a pipeline, its counters, and the small moves that keep its indices together.

Everything that decides the future lives here and nothing else does, so that a snapshot is this record written out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from entr_lab.pipeline.admission import Mode, Policy
from entr_lab.pipeline.config import PipelineConfig
from entr_lab.pipeline.decisions import Batch, DropReason, LossReason
from entr_lab.pipeline.records import NEVER, Group, Prompt, Trajectory, Worker

__all__ = ["Closed", "Counts", "State", "decrement"]

_K = TypeVar("_K")

Closed = Callable[[Group, DropReason | None], None]
"""Called once per group when it is over: trained (None) or dropped for a reason."""


@dataclass(slots=True)
class Counts:
    """What happened so far; `Pipeline.audit` checks that it adds up.

    Attributes:
        prompts: prompts added by the driver.
        requeued: prompts put back by drop-and-requeue.
        opened: groups opened.
        trained: groups whose batch was published.
        dropped: groups given up, by reason.
        started: rollouts started (tickets).
        finished: rollouts finished and scored.
        lost: starts that came to nothing, by reason.
        late: reports that nobody waited for.
    """

    prompts: int = 0
    requeued: int = 0
    opened: int = 0
    trained: int = 0
    started: int = 0
    finished: int = 0
    late: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)


class State:
    """Mutable state of one pipeline; see `Pipeline` for what its parts mean."""

    __slots__ = (
        "aborts",
        "closed",
        "config",
        "counts",
        "exact",
        "exhausted",
        "flight",
        "flight_floors",
        "free_targets",
        "holding",
        "max_intra",
        "needed",
        "next_group",
        "next_target",
        "next_ticket",
        "open",
        "optimistic",
        "prompts",
        "ready",
        "ready_floors",
        "reissue",
        "requeued",
        "seq",
        "steps",
        "target_fill",
        "training",
        "version",
        "waiting",
        "workers",
    )

    def __init__(self, config: PipelineConfig, closed: Closed | None = None) -> None:
        self.config = config
        self.closed = closed
        # Settings that every event asks for.
        self.exact = config.admission.mode is Mode.EXACT
        self.optimistic = config.admission.policy is not Policy.WAIT
        self.max_intra = config.admission.max_intra
        self.needed = config.needed
        self.version = config.first_version
        self.seq = 1  # event 0 is the start
        self.steps = 0
        self.training: Batch | None = None
        self.reissue = False
        self.exhausted = False
        self.prompts: deque[Prompt] = deque()
        self.requeued: deque[Prompt] = deque()
        self.workers: dict[str, Worker] = {}
        self.flight: dict[int, Trajectory] = {}
        self.open: dict[int, Group] = {}
        self.waiting: deque[Group] = deque()
        self.ready: dict[int, Group] = {}
        self.next_ticket = 0
        self.next_group = 0
        self.next_target = config.first_version
        self.target_fill = 0
        self.free_targets: list[int] = []
        self.counts = Counts()
        self.aborts: list[Trajectory] = []
        # Three indices, so that no check scans the groups: started groups by (first, floor), finished ones by
        # floor, running rollouts by the version that their worker has now.
        self.flight_floors: Counter[tuple[int, int]] = Counter()
        self.ready_floors: Counter[int] = Counter()
        self.holding: dict[int, int] = {}

    @property
    def target(self) -> int:
        """The version that the next batch starts from, counting the one in training as published."""
        return self.version + (self.config.admission.updates_per_batch if self.training else 0)

    @property
    def live(self) -> int:
        """Groups that are open, or finished and not yet taken."""
        return len(self.open) + len(self.ready)

    @property
    def prompts_left(self) -> int:
        """Prompts that no group was opened for yet."""
        return len(self.prompts) + len(self.requeued)

    def move_floor(self, group: Group, first: int, floor: int) -> None:
        """Change the (first, floor) pair of an open group, in the index too."""
        if group.first != NEVER:
            decrement(self.flight_floors, (group.first, group.floor))
        group.first, group.floor = first, floor
        if first != NEVER:
            self.flight_floors[(first, floor)] += 1

    def leave_worker(self, trajectory: Trajectory) -> None:
        """Take a rollout off its worker, which has generated its last token or will not go on."""
        worker = self.workers[trajectory.worker]
        del worker.held[trajectory.ticket]
        decrement(self.holding, worker.version)

    def release(self, trajectory: Trajectory) -> None:
        """Take a rollout out of flight, from its worker and its group."""
        if trajectory.ended < 0:
            self.leave_worker(trajectory)
        del self.flight[trajectory.ticket]
        del self.open[trajectory.group].running[trajectory.ticket]

    def leave_open(self, group: Group) -> None:
        """Take a group out of the open ones."""
        del self.open[group.id]
        if group.first != NEVER:
            decrement(self.flight_floors, (group.first, group.floor))

    def enter_ready(self, group: Group) -> None:
        """Put a group with the finished ones."""
        self.ready[group.id] = group
        self.ready_floors[group.floor] += 1

    def leave_ready(self, group: Group) -> None:
        """Take a group out of the finished ones."""
        del self.ready[group.id]
        decrement(self.ready_floors, group.floor)

    def lose(self, trajectory: Trajectory, reason: LossReason) -> None:
        """Take a rollout out of flight as lost, and have it stopped if it still runs somewhere."""
        self.release(trajectory)
        self.counts.lost[reason] += 1
        if trajectory.ended >= 0:
            group = self.open[trajectory.group]
            kept = (t.spans[-1][0] for t in (*group.done, *group.running.values()) if t.ended >= 0)
            self.move_floor(group, group.first, min(kept, default=NEVER))
        if trajectory.ended < 0 and reason is not LossReason.WORKER_LOST and reason is not LossReason.FAILED:
            self.aborts.append(trajectory)


def decrement(counter: dict[_K, int], key: _K, by: int = 1) -> None:
    """Count less, and forget the key at zero, so that an index stays as small as what it indexes."""
    left = counter[key] - by
    if left:
        counter[key] = left
    else:
        del counter[key]
