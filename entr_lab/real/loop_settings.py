"""Numbers of the loop. Ours."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoopSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Numbers of the loop.

    Args:
        batches: stop once so many batches were trained, those before a resume included.
        slots: rollouts that one generator plays at a time.
        queued: rollouts beside them that wait in its process, so that a slot that falls free is taken at once.
        max_tokens: most tokens of a rollout.
        clear_cache: recompute the key-value cache at a weight update.
        probe_every: batches between two attributions; 0 for none.
        save_every: batches between two checkpoints; 0 for one at the end.
    """

    batches: int
    slots: int
    max_tokens: int
    queued: int = 0
    clear_cache: bool = False
    probe_every: int = 0
    save_every: int = 0

    @property
    def room(self) -> int:
        """Rollouts that one generator is given at a time."""
        return self.slots + self.queued
