"""The random part of a plan: what each group turns out to need. Same seed, same groups, whatever the mode or the split.

Streams are separate, so that two plans that differ in their protocol alone meet the same lengths: their comparison is
paired.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from entr_lab.sim.lengths import wait_times
from entr_lab.sim.plan_schema import Plan

__all__ = ["Draws", "GroupDraw"]

_CHUNK = 512
_WAITS = 4096


class GroupDraw(NamedTuple):
    """What a group needs: response lengths and turns of its rollouts, mean length, whether all rewards are equal."""

    lengths: Sequence[int] = ()
    turns: Sequence[int] = ()
    mean: float = 0.0
    flat: bool = False


class Draws:
    """Draws of one run, made in blocks and kept until `forget`."""

    __slots__ = ("_failures", "_flat", "_groups", "_lengths", "_next", "_plan", "_tools", "_waits", "_workload")

    def __init__(self, plan: Plan, seed: int) -> None:
        self._plan = plan
        self._workload = plan.workload()
        streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)]
        self._lengths, self._flat, self._tools, self._failures = streams
        self._groups: dict[int, GroupDraw] = {}
        self._next = 0
        self._waits: deque[float] = deque()

    def group(self, number: int) -> GroupDraw:
        """Return what group `number` needs."""
        while number >= self._next:
            size = self._plan.batch.rollouts
            lengths = self._workload.lengths_of(self._lengths, _CHUNK, size)
            turns = np.minimum(self._workload.turns_of(self._lengths, _CHUNK, size), lengths).tolist()
            flat = (self._flat.random(_CHUNK) < self._plan.protocol.zero_variance).tolist()
            means = (lengths.sum(axis=1) / size).tolist()
            numbers = range(self._next, self._next + _CHUNK)
            self._groups.update(zip(numbers, map(GroupDraw, lengths.tolist(), turns, means, flat), strict=True))
            self._next += _CHUNK
        return self._groups[number]

    def forget(self, number: int) -> None:
        """Free what is kept of a group that is over."""
        self._groups.pop(number, None)

    def tool_wait(self) -> float:
        """Return the next tool's latency, in seconds."""
        if not self._waits:
            tools = self._plan.tools
            self._waits.extend(wait_times(self._tools, tools.seconds, tools.seconds_cv, _WAITS).tolist())
        return self._waits.popleft()

    def life_time(self) -> float:
        """Return how long a generator works until it fails next, in seconds."""
        assert self._plan.failures is not None
        return float(self._failures.exponential(self._plan.failures.mean_seconds))
