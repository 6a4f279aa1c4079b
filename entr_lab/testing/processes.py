"""Processes without processes: threads that meet in `reduce`, as the ranks of a job do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from entr_lab.rules import KeepRule
from entr_lab.tokens import TokenBatch

__all__ = ["keep_on_processes"]

_PATIENCE_S: Final = 20.0
"""How long one process waits for another before the number of `reduce` calls counts as unequal."""


def keep_on_processes(rule: KeepRule, parts: Sequence[TokenBatch], *, patience_s: float | None = None) -> list[Tensor]:
    """Return `rule.keep` of each part, one simulated process each, with a `reduce` that sums over all of them.

    Raises:
        AssertionError: keep failed on a part, or the processes called reduce a different number of times.
    """
    barrier = threading.Barrier(len(parts), timeout=patience_s or _PATIENCE_S)
    slots: list[Tensor] = [torch.empty(0)] * len(parts)
    masks: list[Tensor] = [torch.empty(0)] * len(parts)
    failures: list[Exception] = []

    def work(rank: int) -> None:
        def reduce(total: Tensor) -> Tensor:
            slots[rank] = total
            barrier.wait()
            summed = torch.stack(slots).sum(0)
            barrier.wait()
            return summed

        try:
            masks[rank] = rule.keep(parts[rank], reduce)
        except Exception as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        if not isinstance(failure, threading.BrokenBarrierError):
            raise AssertionError(f"keep failed on a part of the batch: {failure!r}") from failure
    if failures:
        raise AssertionError("every process must call reduce equally often, whatever its tokens; one stopped short.")
    return masks
