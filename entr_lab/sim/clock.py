"""The virtual clock: a heap of dated events, with ties broken by the order of scheduling.

An event is a function and one argument. Nothing here knows what a generator or a trainer is; time is in seconds and
starts at 0. The run is deterministic: two events at the same instant fire in the order in which they were scheduled.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from entr_lab.errors import ProtocolError

__all__ = ["VirtualClock"]

Handler = Callable[[Any], None]


class VirtualClock:
    """Fires events in order of time.

    Attributes:
        now: the current virtual time, in seconds; never decreases.
        fired: how many events have fired, which is the unit of the simulator's cost.
    """

    __slots__ = ("_heap", "_order", "_stopped", "fired", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.fired = 0
        self._order = 0
        self._stopped = False
        self._heap: list[tuple[float, int, Handler, Any]] = []

    def at(self, time: float, handler: Handler, argument: Any = None) -> None:
        """Schedule `handler(argument)` at `time` (s).

        Raises:
            ProtocolError: `time` lies in the past, or is not a number.
        """
        if not time >= self.now:
            raise ProtocolError(
                f"an event was scheduled at {time!r} s while the clock shows {self.now!r} s; schedule it now or later."
            )
        self._order += 1
        heappush(self._heap, (time, self._order, handler, argument))

    def after(self, delay: float, handler: Handler, argument: Any = None) -> None:
        """Schedule `handler(argument)` `delay` seconds from now; `delay` ≥ 0."""
        self.at(self.now + delay, handler, argument)

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
