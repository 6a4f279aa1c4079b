"""Where the time of one worker or of the trainer went: seconds in each state, which add up to all of them. Ours."""

from __future__ import annotations

from collections import defaultdict

__all__ = ["TimeAccount"]


class TimeAccount:
    """Seconds by state.

    Args:
        now: seconds at the beginning.
        state: that it begins in.
    """

    def __init__(self, now: float, state: str) -> None:
        self._since, self._state = now, state
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def enter(self, state: str, now: float) -> None:
        """Change to another state, or stay in it."""
        self._seconds[self._state] += now - self._since
        self._since, self._state = now, state

    def shares(self, now: float) -> dict[str, float]:
        """Return the share of the time since the beginning spent in each state; they sum to 1."""
        self.enter(self._state, now)
        total = sum(self._seconds.values())
        return {state: seconds / total if total else 0.0 for state, seconds in sorted(self._seconds.items())}
