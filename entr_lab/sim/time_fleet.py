"""Many engines at once: what each runs, as columns of numbers, and a forecast of every completion to come.

The model is that of `entr_lab.sim.service`, in the same order of operations, for sequences of one turn that never wait
for a slot. Between two interventions (an arrival, an update) nothing that happens in one engine depends on another,
and the completions of one follow from its attained service v and its context alone: with the marks v_1 ≤ v_2 ≤ … of
what it runs, sequence j ends

    (base[b_j] + κ·K_j)·g_j + κ·b_j·g_j²/2     after sequence j − 1,     g_j = v_j − v_{j−1},   b_j = b − j + 1,

where K_j, the context when j − 1 ends, is the one before plus b·g less what the ended sequence held.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entr_lab.pipeline.versions import VersionSpan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_costs import EngineCosts

__all__ = ["Coming", "Fleet"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ENGINE, _END, _LENGTH, _TICKET, _GROUP, _BEGIN, _FIRST, _STARTED = range(8)
_tuple = tuple.__new__  # what VersionSpan(…) does, without its Python-level constructor


class Coming(NamedTuple):
    """The completions to come if nobody intervenes, in order; one entry of each list per running sequence."""

    times: list[float]
    engines: list[int]
    tickets: list[int]
    groups: list[int]
    started: list[float]
    lengths: list[int]
    begins: list[float]
    firsts: list[int]


class Fleet:
    """The engines of a steady plan.

    Attributes:
        time: when each engine's service was last brought up to date (s); in the future while it is stalled.
        running: sequences that each engine runs, without those that `coming` has ended since the last `settle`.
        coming: the forecast of `look_ahead`.
    """

    def __init__(self, costs: EngineCosts, engines: int, prompt: int) -> None:
        self._base = np.array(costs.base)
        self._base[0] = 1.0  # nobody runs, nothing is gained: only keeps the division finite
        self._kv, self._prefill, self._prompt = costs.kv, costs.prefill, prompt
        self._v, self.time, self._context = np.zeros(engines), np.zeros(engines), np.zeros(engines)
        self.running = np.zeros(engines, dtype=np.int64)
        self._place = np.arange(engines)  # order of engines among ties
        self._places = engines
        self._marks: list[list[float]] = []
        self._versions = [0]
        # Columns are sequences, sorted by engine and mark; numbers of tickets and tokens are exact in float64.
        self._rows = np.zeros((8, 0))
        self._due, self._contexts, self._order = np.zeros(0), np.zeros((engines, 1)), np.zeros(0, dtype=np.int64)
        self.coming = Coming([], [], [], [], [], [], [], [])

    def arrive(self, now: float, engines: list[int], lengths: list[int], tickets: list[int], groups: list[int]) -> None:
        """Start sequences at `now`, after `settle`, one per entry."""
        index = np.array(engines)
        new = np.empty((8, index.size))
        new[_ENGINE], new[_LENGTH], new[_TICKET], new[_GROUP] = index, lengths, tickets, groups
        touched = np.bincount(index, minlength=self.time.size)
        self._advance(now, touched > 0)
        new[_BEGIN], new[_FIRST], new[_STARTED] = self._v[index], len(self._marks), now
        new[_END] = new[_BEGIN] + new[_LENGTH]
        np.add.at(self.time, index, self._prefill * self._prompt)
        np.add.at(self._context, index, float(self._prompt))
        self.running += touched
        first_seen = list(dict.fromkeys(engines))
        self._place[first_seen] = self._places + np.arange(len(first_seen))
        self._places += len(first_seen)
        rows = np.concatenate((self._rows, new), axis=1)
        self._rows = rows[:, np.lexsort((rows[_END], rows[_ENGINE]))]

    def update(self, now: float, version: int, stall: float, recompute_kv: bool) -> None:
        """Install `version` everywhere at `now`, after `settle`; see `Engine.update`."""
        self._advance(now, np.ones(self.time.size, dtype=np.bool_))
        self._marks.append(self._v.tolist())
        self._versions.append(version)
        stalled = np.maximum(self.time, now) + stall
        self.time = stalled + self._prefill * self._context if recompute_kv else stalled
        self._place = self._places + np.arange(self.time.size)
        self._places += self.time.size
        firsts = self._rows[_FIRST]
        past = int(firsts.min()) if firsts.size else len(self._marks)
        if past:  # marks that nothing straddles
            del self._marks[:past], self._versions[:past]
            self._rows[_FIRST] -= past

    def look_ahead(self, now: float) -> None:
        """Forecast all completions from the present state."""
        rows, running, engines = self._rows, self.running, self.time.size
        index = rows[_ENGINE].astype(np.int64)
        start = np.cumsum(running) - running
        column = np.arange(index.size) - start[index]
        gap = np.diff(rows[_END], prepend=0.0)
        head = start[running > 0]
        gap[head] = rows[_END, head] - self._v[index[head]]
        batch = running[index] - column
        widest = int(running.max()) if index.size else 0
        self._contexts = np.zeros((engines, widest + 1))
        self._contexts[:, 0] = self._context
        self._contexts[index, column + 1] = batch * gap - self._prompt - rows[_LENGTH]
        np.cumsum(self._contexts, axis=1, out=self._contexts)
        due = np.zeros((engines, max(widest, 1)))
        held = self._contexts[index, column]
        due[index, column] = gap * (self._base[batch] + self._kv * (held + 0.5 * batch * gap))
        due[:, 0] = np.maximum(self.time + due[:, 0], now)
        self._due = np.cumsum(due, axis=1)[index, column]
        order = np.argsort(self._due, kind="stable")
        times, engine = self._due[order], index[order]
        if np.any((times[1:] == times[:-1]) & (engine[1:] != engine[:-1])):
            order = self._merge(index, start)
        self._order = order
        rows = rows[:, order]
        whole = rows[[_ENGINE, _TICKET, _GROUP, _LENGTH, _FIRST]].astype(np.int64).tolist()
        at, tickets, groups, lengths, firsts = whole
        begins, started = rows[_BEGIN].tolist(), rows[_STARTED].tolist()
        self.coming = Coming(self._due[order].tolist(), at, tickets, groups, started, lengths, begins, firsts)

    def settle(self, ended: int) -> None:
        """Take the first `ended` of `coming` as what has happened; only then may `arrive` or `update` be called."""
        if not ended:
            return
        taken = self._order[:ended]
        index = self._rows[_ENGINE, taken].astype(np.int64)
        count = np.bincount(index, minlength=self.time.size)
        some = np.flatnonzero(count)
        count = count[some]
        last = (np.cumsum(self.running) - self.running)[some] + count - 1
        self._v[some], self.time[some] = self._rows[_END, last], self._due[last]
        # An engine that has ended all forgets the rounding of its busy period.
        self._context[some] = np.where(count == self.running[some], 0.0, self._contexts[some, count])
        self.running[some] -= count
        self._place[index] = self._places + np.arange(ended)  # the last of each engine counts
        self._places += ended
        keep = np.ones(self._rows.shape[1], dtype=np.bool_)
        keep[taken] = False
        self._rows = self._rows[:, keep]
        self._order = self._order[:0]

    def spans(self, start: int, stop: int) -> list[tuple[VersionSpan, ...]]:
        """Return the versions of the tokens of entries `start` ≤ i < `stop` of `coming`."""
        coming, newest, version = self.coming, len(self._marks), self._versions[-1]
        return [
            (_tuple(VersionSpan, (version, 0, length)),) if first == newest else self._straddling(entry)
            for entry, (length, first) in enumerate(
                zip(coming.lengths[start:stop], coming.firsts[start:stop], strict=True), start
            )
        ]

    def _straddling(self, entry: int) -> tuple[VersionSpan, ...]:
        coming, marks, versions = self.coming, self._marks, self._versions
        engine, begin, length, done = coming.engines[entry], coming.begins[entry], coming.lengths[entry], 0
        spans: list[VersionSpan] = []
        for mark in range(coming.firsts[entry], len(versions)):
            upto = min(int(marks[mark][engine] - begin), length) if mark < len(marks) else length
            if upto > done:
                spans.append(_tuple(VersionSpan, (versions[mark], done, upto)))
                done = upto
        return tuple(spans)

    def hand_over(self, engines: Sequence[Engine]) -> list[int]:
        """Leave everything to `engines`, after `settle`; return their indices in the order of ties."""
        column = self._rows[_ENGINE]
        for index, engine in enumerate(engines):
            rollouts = []
            for _, _, length, ticket, group, begin, first, started in self._rows[:, column == index].T.tolist():
                number = int(ticket)
                rollout = Rollout(number, int(group), int(length), 1, self._prompt, started, float(number & 1))
                rollout.v_start, rollout.first_mark, rollout.entered = begin, int(first), started
                rollouts.append(rollout)
            engine.take_over(float(self._v[index]), float(self.time[index]), float(self._context[index]), rollouts)
            engine.marks, engine.versions = [marks[index] for marks in self._marks], list(self._versions)
        return [int(index) for index in np.argsort(self._place)]

    def take_over(self, engines: Sequence[Engine]) -> None:
        """Go on where `engines` stop, which then hold nothing: the opposite of `hand_over`, into a fresh fleet.

        All have the same newest weights, and nothing waits for a slot. One that skipped a version installed it, for
        no token, when it installed the next.
        """
        versions = sorted({version for engine in engines for version in engine.versions})
        steps = versions[1:]
        marks = np.zeros((len(steps), len(engines)))
        rows: list[tuple[float, ...]] = []
        for index, engine in enumerate(engines):
            own, at = engine.versions, [0.0, *engine.marks]
            # Before an engine's first version nothing that it runs has begun: that mark is never read.
            marks[:, index] = [at[bisect_left(own, version)] for version in steps]
            for end, _, job in sorted(engine.running, key=lambda entry: entry[:2]):
                first = bisect_left(versions, own[job.first_mark])
                rows.append((index, end, job.left, job.ticket, job.group, job.v_start, first, job.started))
            self._v[index], self.time[index], self._context[index] = engine.v, engine.time, engine.context
            self.running[index] = len(engine.running)
            engine.take_over(0.0, 0.0, 0.0, ())
            engine.due = engine.alarm = math.inf
        self._marks, self._versions = marks.tolist(), versions
        self._rows = np.array(rows).T if rows else np.zeros((8, 0))

    def _advance(self, now: float, who: NDArray[np.bool_]) -> None:
        """Bring the attained service of some engines up to `now`; see `Engine.advance`."""
        index = np.flatnonzero(who & (self.time < now))
        batch, elapsed = self.running[index], now - self.time[index]
        rate = self._base[batch] + self._kv * self._context[index]
        root = np.sqrt(rate * rate + 2.0 * self._kv * batch * elapsed)
        gained = np.where(batch > 0, 2.0 * elapsed / (rate + root), 0.0)
        self._v[index] += gained
        self._context[index] += batch * gained
        self.time[index] = now

    def _merge(self, index: Ints, start: Ints) -> Ints:
        """Order completions with ties between engines: an engine's next one comes after all that were due before."""
        due, stop, place = self._due.tolist(), (start + self.running).tolist(), self._places
        busy = np.flatnonzero(self.running).tolist()
        heap = [(due[start[e]], int(self._place[e]), int(start[e]), e) for e in busy]
        heapify(heap)
        order = np.empty(index.size, dtype=np.int64)
        for rank in range(index.size):
            _, _, entry, engine = heap[0]
            order[rank] = entry
            if entry + 1 < stop[engine]:
                heapreplace(heap, (due[entry + 1], place + rank, entry + 1, engine))
            else:
                heappop(heap)
        return order
