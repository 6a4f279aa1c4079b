"""The virtual clock: a heap of dated events, with ties broken by the order of scheduling.

An event is a function and one argument. Nothing here knows what a generator or a trainer is; time is in seconds and
starts at 0. The run is deterministic: two events at the same instant fire in the order in which they were scheduled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappop, heappush, heappushpop
from typing import Any

from entr_lab.errors import ProtocolError

__all__ = ["VirtualClock"]

Handler = Callable[[Any], None]


class VirtualClock:
    """Fires events in order of time.

    Attributes:
        now: the current virtual time, in seconds; never decreases.
        fired: how many events have fired; a handler may correct it for what was none, or several in one.
    """

    __slots__ = ("_heap", "_order", "_stopped", "fired", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.fired = 0
        self._order = 0
        self._stopped = False
        self._heap: list[tuple[float, int, Handler, Any]] = []

    def reserve(self) -> int:
        """Return the next place in the order of scheduling, for an event that is handed in by `at` later."""
        self._order += 1
        return self._order

    def at(self, time: float, handler: Handler, argument: Any = None, place: int = 0) -> None:
        """Schedule `handler(argument)` at `time` (s), among ties at a reserved place if one is given.

        Raises:
            ProtocolError: `time` lies in the past, or is not a number.
        """
        if not time >= self.now:
            raise ProtocolError(
                f"an event was scheduled at {time!r} s while the clock shows {self.now!r} s; schedule it now or later."
            )
        if not place:
            self._order = place = self._order + 1
        heappush(self._heap, (time, place, handler, argument))

    def after(self, delay: float, handler: Handler, argument: Any = None) -> None:
        """Schedule `handler(argument)` `delay` seconds from now; `delay` ≥ 0."""
        self.at(self.now + delay, handler, argument)

    def take(self, handler: Handler) -> Any:
        """Return the argument of the next event and let its time come, if it is one of `handler`'s; else None.

        For a handler that goes on with the next of its own events, in their order, without returning.
        """
        heap = self._heap
        if not heap or self._stopped or heap[0][2] != handler:
            return None
        self.fired += 1
        self.now, _, _, argument = heappop(heap)
        return argument

    def swap(self, time: float, handler: Handler, argument: Any, place: int = 0) -> Any:
        """Schedule `handler(argument)` at `time` ≥ now and `take` the next event, in one: `at`, then `take`.

        `handler` must be the very object that events are scheduled with, not an equal one.
        """
        if not place:
            self._order = place = self._order + 1
        event = heappushpop(self._heap, (time, place, handler, argument))
        if event[2] is not handler or self._stopped:
            heappush(self._heap, event)
            return None
        self.fired += 1
        self.now = event[0]
        return event[3]

    @property
    def next_time(self) -> float:
        """The date of the next event, in seconds; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def stop(self) -> None:
        """Make `run` return after the event that is firing."""
        self._stopped = True

    def run(self) -> None:
        """Fire events until none is left or `stop` was called."""
        heap = self._heap
        self._stopped = False
        while heap and not self._stopped:
            self.now, _, handler, argument = heappop(heap)
            self.fired += 1
            handler(argument)
