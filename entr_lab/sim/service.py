"""The service model: how fast a generator decodes, how long a trainer step and a weight update take.

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
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from entr_lab.errors import check_range
from entr_lab.pipeline.versions import VersionSpan

__all__ = ["Engine", "EngineCosts", "Rollout", "SyncCosts", "TrainerCosts"]


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """What one generator's steps cost, in seconds.

    `base[b]` is τ(b, 0) for b = 0 … slots running sequences; `kv` is κ, per token of context; `prefill` per
    prompt token.
    """

    base: tuple[float, ...]
    kv: float
    prefill: float

    def __post_init__(self) -> None:
        check_range("the number of slots of a generator", len(self.base) - 1, low=1)
        check_range("the time of a decode step", min(self.base[1:]), low=0, low_open=True)
        check_range("the cost of a cached token", self.kv, low=0)
        check_range("the cost of a prefilled token", self.prefill, low=0)

    @property
    def slots(self) -> int:
        """Most sequences that run at once."""
        return len(self.base) - 1

    def seconds_per_token(self, running: int, context: float) -> float:
        """Return τ(b, K)/b, the engine's seconds per emitted token."""
        return (self.base[running] + self.kv * context) / running

    def scaled(self, factor: float) -> EngineCosts:
        """Return these costs times `factor` > 0."""
        return EngineCosts(tuple(factor * seconds for seconds in self.base), factor * self.kv, factor * self.prefill)

    @classmethod
    def linear(
        cls, fixed: float, per_sequence: float, slots: int, *, kv: float = 0.0, prefill: float = 0.0
    ) -> EngineCosts:
        """Costs with base[b] = fixed + per_sequence·b."""
        return cls(tuple(fixed + per_sequence * batch for batch in range(slots + 1)), kv, prefill)


@dataclass(frozen=True, slots=True)
class TrainerCosts:
    """Seconds of a trainer step: `fixed` + `per_token` · tokens of the batch (prompt and response)."""

    fixed: float
    per_token: float

    def __post_init__(self) -> None:
        check_range("the fixed time of a trainer step", self.fixed, low=0)
        check_range("the trainer's time per token", self.per_token, low=0)

    def step(self, tokens: float) -> float:
        """Return the seconds of one step over `tokens` tokens."""
        return self.fixed + self.per_token * tokens

    def scaled(self, factor: float) -> TrainerCosts:
        """Return these costs times `factor` > 0."""
        return TrainerCosts(factor * self.fixed, factor * self.per_token)


@dataclass(frozen=True, slots=True)
class SyncCosts:
    """A weight update: `transfer` seconds during which generators are paused and the trainer is held."""

    transfer: float
    recompute_kv: bool = True
    """Whether a generator prefills its running contexts again under the new weights, or keeps the old cache."""

    def __post_init__(self) -> None:
        check_range("the time of a weight transfer", self.transfer, low=0)


@dataclass(slots=True, eq=False)
class Rollout:
    """One trajectory on its way through a generator."""

    ticket: int
    """The pipeline's number of this start of the rollout."""
    prompt: int
    """Number of its prompt, which its lengths are drawn by."""
    tokens: int
    """Response tokens in all."""
    left: int
    """Response tokens of the turn that is next or running."""
    context: int
    """Tokens in the cache when the turn starts."""
    prefill: int
    """Tokens to prefill when the turn starts."""
    turns: int = 1
    """Turns that remain, this one included."""
    started: float = 0.0
    """When it was dispatched, in seconds."""
    entered: float = 0.0
    """When it came to its engine for the present turn, in seconds."""
    answers: int = 0
    """Tokens of tool answers in its context."""
    engine: int = -1
    spans: list[VersionSpan] = field(default_factory=list)
    """Versions of the tokens of the turns that have ended."""
    v_start: float = 0.0
    first_mark: int = 0


class Engine:
    """One generator under processor sharing; see the module's docstring for the model.

    Times given to its methods never decrease. `epoch` is raised whenever the date of the next completion may have
    changed, so that an event scheduled for an earlier epoch can be told to be void.
    """

    __slots__ = (
        "_base", "_kv", "_order", "_prefill", "_slots", "admitting", "context", "epoch", "index", "load", "marks",
        "running", "time", "v", "versions", "waiting",
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
        self.epoch = 0
        self.admitting = True
        self.load = 0
        """Rollouts running or waiting here."""
        self.running: list[tuple[float, int, Rollout]] = []
        self.waiting: deque[Rollout] = deque()
        self.marks: list[float] = []
        self.versions: list[int] = [version]

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
        if not self.running:
            return math.inf
        batch = len(self.running)
        gap = self.running[0][0] - self.v
        return self.time + gap * (self._base[batch] + self._kv * (self.context + 0.5 * batch * gap))

    def arrive(self, now: float, rollout: Rollout) -> None:
        """Take in a rollout: it runs at once if a slot is free and the engine admits, else waits in order."""
        self.advance(now)
        rollout.engine = self.index
        rollout.entered = now
        self.load += 1
        if self.admitting and not self.waiting and len(self.running) < self._slots:
            self._start(rollout)
            self.epoch += 1
        else:
            self.waiting.append(rollout)

    def complete(self, now: float) -> Rollout:
        """End the turn that `next_completion` announced for `now`; a waiting rollout takes its slot."""
        running = self.running
        batch = len(running)
        v_end, _, rollout = heappop(running)
        self.context += batch * (v_end - self.v) - rollout.context - rollout.left
        self.v, self.time = v_end, now
        if rollout.spans or rollout.first_mark < len(self.marks):
            self._record(rollout, rollout.left)
        else:
            # What VersionSpan(…) does, without its Python-level constructor: this is the hottest line of a run.
            rollout.spans.append(tuple.__new__(VersionSpan, (self.versions[-1], 0, rollout.left)))
        self.load -= 1
        if batch == 1:
            self.context = 0.0  # forget the rounding of a busy period
        if self.waiting:
            self._fill()
        self.epoch += 1
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
        self.epoch += 1

    def admit(self, now: float, admitting: bool) -> None:
        """Open or close the engine to new sequences; those that run go on."""
        self.advance(now)
        self.admitting = admitting
        self._fill()
        self.epoch += 1

    def fail(self, now: float, repair: float) -> list[Rollout]:
        """Lose everything on board, be away for `repair` seconds; returns what was lost, in order of arrival here."""
        self.advance(now)
        lost = [rollout for _, _, rollout in sorted(self.running, key=lambda entry: entry[1])]
        lost.extend(self.waiting)
        self.running.clear()
        self.waiting.clear()
        self.load = 0
        self.context = 0.0
        self.marks.clear()
        self.versions = self.versions[-1:]
        self.time = max(self.time, now) + repair
        self.epoch += 1
        return lost

    def stop(self, now: float, rollout: Rollout) -> None:
        """Give up a rollout that runs or waits here; nothing happens if it is elsewhere."""
        self.advance(now)
        if rollout in self.waiting:
            self.waiting.remove(rollout)
            self.load -= 1
        for position, (v_end, _, running) in enumerate(self.running):
            if running is rollout:
                self.context -= rollout.context + rollout.left - (v_end - self.v)
                self.running[position] = self.running[-1]
                self.running.pop()
                heapify(self.running)
                self.load -= 1
                self._fill()
                self.epoch += 1
                return

    def _fill(self) -> None:
        while self.waiting and self.admitting and len(self.running) < self._slots:
            self._start(self.waiting.popleft())

    def _start(self, rollout: Rollout) -> None:
        self._order += 1
        self.time += self._prefill * rollout.prefill
        rollout.v_start = self.v
        rollout.first_mark = len(self.marks)
        self.context += rollout.context
        heappush(self.running, (self.v + rollout.left, self._order, rollout))

    def _record(self, rollout: Rollout, tokens: int) -> None:
        """Append to the rollout's spans those of a turn of `tokens` tokens that ends now."""
        spans = rollout.spans
        first = spans[-1][2] if spans else 0
        done = first
        for mark in range(rollout.first_mark, len(self.marks)):
            upto = first + min(int(self.marks[mark] - rollout.v_start), tokens)
            if upto > done:
                _extend(spans, self.versions[mark], done, upto)
                done = upto
        if first + tokens > done:
            _extend(spans, self.versions[-1], done, first + tokens)


def _extend(spans: list[VersionSpan], version: int, start: int, stop: int) -> None:
    if spans and spans[-1][0] == version:
        spans[-1] = VersionSpan(version, spans[-1][1], stop)
    else:
        spans.append(VersionSpan(version, start, stop))
