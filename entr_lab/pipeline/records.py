"""The nouns of the protocol: prompts, trajectories, groups, workers.

These are plain mutable records, owned by the pipeline. A driver reads those that it is handed and changes none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from entr_lab.pipeline.versions import VersionSpan, token_count

__all__ = ["NEVER", "Group", "Prompt", "Trajectory", "Worker"]

NEVER = 1 << 60
"""A version beyond all versions: the floor of a group that no token bounds yet."""


class Prompt(NamedTuple):
    """One item of data: an id that the driver can look up, and what the drop-bias report splits by."""

    id: str
    source: str = ""
    difficulty: float = 0.0
    attempt: int = 1


@dataclass(slots=True, eq=False)
class Trajectory:
    """One rollout: first an order to a worker, then its result.

    Attributes:
        ticket: unique number of this start of the rollout; what a driver reports back.
        version: weights that it starts under (the worker's at dispatch; the first planned in mode exact).
        started: when it was dispatched.
        last_version: last planned version in mode exact, else -1.
        spans: token versions, as far as reported.
        ended: when its last token was reported; -1 while a worker holds it.
        reward: its reward once finished, else None.
    """

    ticket: int
    group: int
    index: int
    worker: str
    version: int
    last_version: int
    attempt: int
    started: float
    spans: tuple[VersionSpan, ...] = ()
    ended: float = -1.0
    reward: float | None = None

    @property
    def first_version(self) -> int:
        """Version of its first token; until one is reported, the version that it started under."""
        return self.spans[0][0] if self.spans else self.version

    @property
    def tokens(self) -> int:
        """Tokens reported so far."""
        return token_count(self.spans)


@dataclass(slots=True, eq=False)
class Group:
    """All rollouts of one prompt.

    Attributes:
        waiting: (index, attempt) of the rollouts that still need a worker, last first.
        running: rollouts in flight, by ticket.
        done: finished rollouts, in order of finishing.
        lost: rollouts given up for good.
        cut: tokens that the given-up ones are known to have had, where any were reported.
        first: lowest version that any of its rollouts started under.
        floor: lowest v_last of its finished rollouts; `NEVER` while none has finished.
        target: the only version that may use it, in mode exact, else -1.
        settled: when it was complete or dropped; -1 before.
    """

    id: int
    prompt: Prompt
    size: int
    opened: float
    target: int = -1
    waiting: list[tuple[int, int]] = field(default_factory=list)
    running: dict[int, Trajectory] = field(default_factory=dict)
    done: list[Trajectory] = field(default_factory=list)
    lost: int = 0
    first: int = NEVER
    floor: int = NEVER
    settled: float = -1.0
    cut: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Worker:
    """A generator: its weights' version and the rollouts that it holds, by ticket."""

    name: str
    version: int
    held: dict[int, Trajectory] = field(default_factory=dict)

    def started_before(self, version: int) -> list[Trajectory]:
        """Return what it holds whose first token is older than `version`; not for mode exact.

        Rollouts are held in the order in which they were dispatched and weights never go back, so the first one that
        started late enough ends the search.
        """
        early = []
        for trajectory in self.held.values():
            if trajectory.version >= version:
                break
            if trajectory.first_version < version:
                early.append(trajectory)
        return early
