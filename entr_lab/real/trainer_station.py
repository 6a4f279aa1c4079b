"""The trainer as the loop drives it: one batch or one checkpoint at a time, and versions that nobody loads any more.

It reports through the queue that the stations report through, and decides nothing. Ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from entr_lab.pipeline import Batch
from entr_lab.real.ports import TrainerPort
from entr_lab.real.records import Rollout
from entr_lab.real.reports import Broken, Report, Saved, Trained
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["Saver", "TrainerStation"]

Saver = Callable[[int], Awaitable[None]]
"""Called with the number of batches trained when a checkpoint is due; the trainer is at rest until it returns."""


class TrainerStation:
    """See the module.

    Args:
        trainer: at the version that the pipeline publishes next.
        report: receives what happens.
    """

    def __init__(self, trainer: TrainerPort, report: Callable[[Report], None]) -> None:
        self.trainer = trainer
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether a batch or a checkpoint is under way, or reported and not yet settled."""
        return self._task is not None

    def settle(self) -> None:
        """Take note that the report of the batch or the checkpoint has been handled."""
        self._task = None

    def train(self, batch: Batch, groups: Sequence[Sequence[Rollout]], probe: bool) -> None:
        """Train on a batch and report `Trained`."""
        self._task = asyncio.create_task(self._work(self._train, batch, groups, probe))

    def checkpoint(self, save: Saver, done: int) -> None:
        """Write a checkpoint after `done` batches and report `Saved`."""
        self._task = asyncio.create_task(self._work(self._checkpoint, save, done))

    def release(self, manifests: Iterable[WeightManifest]) -> None:
        """Free published versions; nothing is reported of it."""
        for manifest in manifests:
            task = asyncio.create_task(self._work(self.trainer.release, manifest))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Give up what is under way and wait until what was published is freed."""
        tasks = list(self._releases)
        if self._task is not None:
            self._task.cancel()
            tasks.append(self._task)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            await work(*arguments)
        except Exception as error:
            self._report(Broken(error))

    async def _train(self, batch: Batch, groups: Sequence[Sequence[Rollout]], probe: bool) -> None:
        self._report(Trained(batch, await self.trainer.step(groups, batch.target_version, probe)))

    async def _checkpoint(self, save: Saver, done: int) -> None:
        await save(done)
        self._report(Saved())
