"""Which generator gets the next rollout: the least loaded one, the first of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, heapreplace

from entr_lab.sim.service import Engine

__all__ = ["Balance"]


class Balance:
    """The order in which generators get work.

    Attributes:
        changed: indices of engines whose load has changed, or which may have work again, since the last `pick`; whoever
            changes an engine adds it.
        away: indices of engines that are down, and get nothing.
        on_board: what each engine has on board, where somebody else counts it; None: the engines are asked.
        full: whether the last `pick` ended because the least loaded engine had no slot left.
    """

    __slots__ = ("_closed", "_engines", "_heap", "_load", "_slots", "away", "changed", "full", "on_board")

    def __init__(self, engines: Sequence[Engine], slots: int) -> None:
        self.changed = set(range(len(engines)))
        self.away: set[int] = set()
        self.on_board: list[int] | None = None
        self.full = False
        self._engines = engines
        self._slots = slots
        self._load = [0] * len(engines)  # what is on board, and what `pick` has promised
        self._closed = [False] * len(engines)
        # Entries load · engines + index, smallest first; those that no longer hold are skipped.
        self._heap: list[int] = []

    def pick(self, count: int) -> list[int]:
        """Return who gets the next `count` rollouts, in order; fewer if the slots end, and a few more for big loads.

        An engine that runs many already takes a few at a time, which unbalances the loads by a sixteenth at most.
        """
        if self.changed:
            self._enter()
        heap, loads, closed, slots, engines = self._heap, self._load, self._closed, self._slots, len(self._load)
        picked: list[int] = []
        self.full = False
        while heap and len(picked) < count:
            load, index = divmod(heap[0], engines)
            if loads[index] != load or closed[index]:
                heappop(heap)
            elif load >= slots:
                self.full = True
                break
            elif load < 16:
                loads[index] = load + 1
                heapreplace(heap, heap[0] + engines)
                picked.append(index)
            else:
                more = min(1 + load // 16, slots - load)
                loads[index] = load + more
                heapreplace(heap, heap[0] + more * engines)
                picked += [index] * more
        return picked

    def give_back(self, picked: Iterable[int]) -> None:
        """Take back promises that were not kept, before the next `pick`."""
        self.changed.update(picked)

    def close(self, index: int) -> None:
        """Give an engine no more work until it is among `changed` again."""
        self._enter()
        self._closed[index] = True

    def _enter(self) -> None:
        heap, loads, engines, on_board = self._heap, self._load, self._engines, self.on_board
        if len(heap) > 4 * len(engines):  # mostly entries that no longer hold
            heap.clear()
            self.changed.update(range(len(engines)))
        for index in sorted(self.changed):
            loads[index] = load = engines[index].load if on_board is None else on_board[index]
            self._closed[index] = index in self.away
            heappush(heap, load * len(engines) + index)
        self.changed.clear()
