"""The service model: how fast a generator decodes, and which weights its tokens come from.

**Decoding is processor sharing.** A continuous-batching engine with b running sequences holding K tokens of context
emits one token for each of them every

    τ(b, K) = base[b] + κ·K          seconds,

base[b] the cost of reading the weights and of the matrix products, κ the cost of reading one token of cache. Every
running sequence therefore attains service at the same rate, so the engine keeps one *attained service* v (tokens per
sequence) and each sequence ends when v reaches its own mark: one event per completion, none per token. Between events
K grows by b per unit of v, and the time for a further Δv is exact:

    Δt = (base[b] + κ·K)·Δv + κ·b·Δv²/2,

with the inverse  Δv = 2Δt / (a + √(a² + 2κb·Δt)),  a = base[b] + κ·K, stable for κ → 0.

A prefill stalls the whole engine (the engine serves prefills first), as do a weight update and the recomputation of
the cache after it. An update marks v; the versions of a trajectory's tokens are read off those marks at completion.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from entr_lab.pipeline.versions import VersionSpan
from entr_lab.sim.time_costs import EngineCosts
from entr_lab.sim.time_rollout import Rollout

__all__ = ["Engine", "Rollout"]

_tuple = tuple.__new__  # what VersionSpan(…) does, without its Python-level constructor: these are the hottest lines


class Engine:
    """One generator under processor sharing; see the module's docstring for the model.

    Times given to its methods never decrease.
    """

    __slots__ = (
        "_base", "_kv", "_order", "_prefill", "_slots", "alarm", "context", "due", "index", "marks", "place", "running",
        "time", "v", "versions", "waiting",
    )  # fmt: skip

    def __init__(self, index: int, costs: EngineCosts, version: int = 0) -> None:
        self.index = index
        self._base = costs.base
        self._kv = costs.kv
        self._prefill = costs.prefill
        self._slots = costs.slots
        self._order = 0
        self.v = 0.0
        self.time = 0.0
        """When `v` was last brought up to date; in the future while the engine is stalled."""
        self.context = 0.0
        self.due = self.alarm = math.inf
        self.place = 0
        """For whoever schedules this engine: the date of its next completion, the date of the event that looks for it,
        and its place among ties."""
        self.running: list[tuple[float, int, Rollout]] = []
        self.waiting: deque[Rollout] = deque()
        self.marks: list[float] = []
        self.versions: list[int] = [version]

    @property
    def load(self) -> int:
        """Rollouts running or waiting here."""
        return len(self.running) + len(self.waiting)

    def advance(self, now: float) -> None:
        """Bring the attained service up to `now` (s); a stalled engine attains none."""
        elapsed = now - self.time
        if elapsed <= 0.0:
            return
        batch = len(self.running)
        if batch:
            rate = self._base[batch] + self._kv * self.context
            gained = 2.0 * elapsed / (rate + math.sqrt(rate * rate + 2.0 * self._kv * batch * elapsed))
            self.v += gained
            self.context += batch * gained
        self.time = now

    def next_completion(self) -> float:
        """Return when the next running sequence ends its turn, in seconds; infinite if none runs."""
        running = self.running
        if not running:
            return math.inf
        batch = len(running)
        gap = running[0][0] - self.v
        return self.time + gap * (self._base[batch] + self._kv * (self.context + 0.5 * batch * gap))

    def arrive(self, now: float, rollout: Rollout) -> None:
        """Take in a rollout: it runs at once if a slot is free, else waits in order."""
        self.arrive_each(now, (rollout,))

    def arrive_each(self, now: float, rollouts: Sequence[Rollout]) -> None:
        """`arrive` for each of `rollouts`, in order."""
        if now > self.time:
            self.advance(now)
        index, running, waiting, v, slots = self.index, self.running, self.waiting, self.v, self._slots
        prefill, marks, order, stalled, context = self._prefill, len(self.marks), self._order, self.time, self.context
        for rollout in rollouts:
            rollout.engine, rollout.entered = index, now
            if waiting or len(running) >= slots:
                waiting.append(rollout)
                continue
            order += 1
            stalled += prefill * rollout.prefill
            rollout.v_start, rollout.first_mark = v, marks
            context += rollout.context
            heappush(running, (v + rollout.left, order, rollout))
        self._order, self.time, self.context = order, stalled, context

    def complete(self, now: float) -> Rollout:
        """End the turn that `next_completion` announced for `now`; a waiting rollout takes its slot."""
        running = self.running
        batch = len(running)
        v_end, _, rollout = heappop(running)
        left = rollout.left
        self.context = context = self.context + (batch * (v_end - self.v) - rollout.context - left)
        self.v, self.time = v_end, now
        if rollout.first_mark < len(self.marks) or rollout.spans:
            rollout.spans = self._record(rollout)
        else:
            rollout.spans = (_tuple(VersionSpan, (self.versions[-1], 0, left)),)
        if batch == 1:
            self.context = 0.0  # forget the rounding of a busy period
        if self.waiting:
            self._fill()
            self.due = self.next_completion()
        elif batch == 1:
            self.due = math.inf
        else:  # `next_completion`, in place: this is the hottest method
            batch -= 1
            gap = running[0][0] - v_end
            self.due = now + gap * (self._base[batch] + self._kv * (context + 0.5 * batch * gap))
        return rollout

    def update(self, now: float, version: int, stall: float, recompute_kv: bool) -> None:
        """Install `version` at `now`; decoding resumes after `stall` seconds and, if asked, a prefill of all caches."""
        self.advance(now)
        if self.running:
            self.marks.append(self.v)
            self.versions.append(version)
        else:  # nothing can straddle this update, so the marks may start afresh
            self.marks.clear()
            self.versions = [version]
        extra = self._prefill * self.context if recompute_kv else 0.0
        self.time = max(self.time, now) + stall + extra

    def fail(self, now: float, repair: float) -> list[Rollout]:
        """Lose everything on board, be away for `repair` seconds; returns what was lost, in order of arrival here."""
        self.advance(now)
        lost = [rollout for _, _, rollout in sorted(self.running, key=lambda entry: entry[1])]
        lost.extend(self.waiting)
        self.running.clear()
        self.waiting.clear()
        self.context = 0.0
        self.marks.clear()
        self.versions = self.versions[-1:]
        self.time = max(self.time, now) + repair
        return lost

    def take_over(self, v: float, time: float, context: float, rollouts: Sequence[Rollout]) -> None:
        """Go on where somebody else stopped, with `rollouts` running, in the order of their ends."""
        self.v, self.time, self.context, self._order = v, time, context, len(rollouts)
        self.running = [(job.v_start + job.left, order, job) for order, job in enumerate(rollouts, 1)]
        for job in rollouts:
            job.engine = self.index

    def stop(self, now: float, rollout: Rollout) -> bool:
        """Give up a rollout that runs or waits here; returns whether it was here (in a tool call it is not)."""
        self.advance(now)
        if rollout in self.waiting:
            self.waiting.remove(rollout)
            return True
        for position, (v_end, _, running) in enumerate(self.running):
            if running is rollout:
                self.context -= rollout.context + rollout.left - (v_end - self.v)
                self.running[position] = self.running[-1]
                self.running.pop()
                heapify(self.running)
                self._fill()
                return True
        return False

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self._slots:
            self._start(self.waiting.popleft())

    def _start(self, rollout: Rollout) -> None:
        self._order = order = self._order + 1
        self.time += self._prefill * rollout.prefill
        rollout.v_start = v = self.v
        rollout.first_mark = len(self.marks)
        self.context += rollout.context
        heappush(self.running, (v + rollout.left, order, rollout))

    def _record(self, rollout: Rollout) -> tuple[VersionSpan, ...]:
        """Return the rollout's spans with those of the turn that ends now."""
        spans, marks, versions, v_start = list(rollout.spans), self.marks, self.versions, rollout.v_start
        first = done = spans[-1][2] if spans else 0
        end = first + rollout.left
        for mark in range(rollout.first_mark, len(versions)):
            upto = first + int(marks[mark] - v_start) if mark < len(marks) else end
            if upto > end:
                upto = end
            if upto > done:
                start, version = done, versions[mark]
                if spans and spans[-1][0] == version:
                    start = spans.pop()[1]
                spans.append(_tuple(VersionSpan, (version, start, upto)))
                done = upto
        return tuple(spans)
