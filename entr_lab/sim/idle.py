"""The why-idle account: where every second of every resource went.

A resource is in one state at a time; the account only ever adds the time between two marks to the state that held
between them, so its parts must sum to the wall-clock. To make that exact rather than nearly exact, times are rounded
to a grid of 2⁻³⁰ s (about a nanosecond) on entry: sums and differences of grid points below 2²³ s (97 days) are exact
in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from entr_lab.errors import ProtocolError

__all__ = ["Account", "Segment", "on_grid"]

_GRID = float(2**30)


def on_grid(time: float) -> float:
    """Return `time` (s) rounded to the grid of 2⁻³⁰ s."""
    return round(time * _GRID) / _GRID


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch of a timeline: [start, end) in seconds, a state, the weight version that held."""

    start: float
    end: float
    state: str
    version: int


@dataclass(slots=True)
class Account:
    """Seconds per state of one resource.

    `hold` imposes a state until a given time (a weight update, a repair); what `mark` says meanwhile takes effect when
    the hold ends. With `keep_segments` the stretches themselves are kept, for a timeline.
    """

    name: str
    state: str
    seconds: dict[str, float] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    keep_segments: bool = False
    version: int = 0
    _since: float = 0.0
    _until: float = 0.0
    _after: str | None = None

    def mark(self, now: float, state: str) -> None:
        """State from `now` (s) on; inside a hold, the state that follows it.

        Raises:
            ProtocolError: `now` precedes the last mark by more than the grid.
        """
        now = on_grid(now)
        if self._after is not None:
            if now < self._until:
                self._after = state
                return
            self._release()
        if state != self.state:
            self._close(now)
            self.state = state

    def hold(self, now: float, until: float, state: str) -> None:
        """State from `now` to `until`, whatever is marked meanwhile; a second hold extends or replaces the first."""
        now, until = on_grid(now), on_grid(until)
        if self._after is not None and now >= self._until:
            self._release()
        after = self.state if self._after is None else self._after
        self._close(now)
        self.state, self._until, self._after = state, max(until, now), after

    def set_version(self, now: float, version: int) -> None:
        """Start a new stretch of the timeline at `now` under `version`."""
        if self.keep_segments:
            now = on_grid(now)
            if self._after is not None and now >= self._until:
                self._release()
            self._close(now)
        self.version = version

    def close(self, now: float) -> dict[str, float]:
        """End the account at `now` and return seconds per state; they sum to `on_grid(now)` exactly."""
        now = on_grid(now)
        if self._after is not None and now >= self._until:
            self._release()
        self._close(now)
        return self.seconds

    def _release(self) -> None:
        assert self._after is not None
        self._close(self._until)
        self.state, self._after = self._after, None

    def _close(self, now: float) -> None:
        if now < self._since:
            raise ProtocolError(
                f"{self.name} was marked at {now} s after it was marked at {self._since} s; mark in order of time."
            )
        if now > self._since:
            self.seconds[self.state] = self.seconds.get(self.state, 0.0) + (now - self._since)
            if self.keep_segments:
                self.segments.append(Segment(self._since, now, self.state, self.version))
            self._since = now
