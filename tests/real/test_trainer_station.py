"""What the trainer's station reports, when it is busy, and what it leaves behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from entr_lab.errors import EngineError
from entr_lab.pipeline import Batch
from entr_lab.real.records import Rollout
from entr_lab.real.reports import Broken, Saved, Trained
from entr_lab.real.trainer_station import TrainerStation
from entr_lab.real.weight_transfer import WeightManifest

from .loop_fakes import PaperGenerator, PaperTrainer, play

BATCH = Batch(step=0, target_version=0, groups=())


async def until(reports: list[Any], count: int) -> None:
    while len(reports) < count:
        await asyncio.sleep(0)


async def some_groups() -> list[list[Rollout]]:
    return [[await play(PaperGenerator(), number, f"t{number}") for number in range(2)]]


def test_a_batch_is_reported_and_busy_until_settled() -> None:
    async def scenario() -> None:
        reports: list[Any] = []
        station = TrainerStation(PaperTrainer(), reports.append)
        assert not station.busy
        station.train(BATCH, await some_groups(), probe=True)
        await until(reports, 1)
        assert isinstance(reports[0], Trained)
        assert reports[0].batch is BATCH
        assert reports[0].result.manifest.version == 1
        assert reports[0].result.attribution
        assert station.busy
        station.settle()
        assert not station.busy

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_checkpoint_is_reported_after_it_is_written() -> None:
    async def scenario() -> None:
        reports: list[Any] = []
        written: list[int] = []
        station = TrainerStation(PaperTrainer(), reports.append)

        async def save(done: int) -> None:
            await asyncio.sleep(0.01)
            assert not reports
            written.append(done)

        station.checkpoint(save, 7)
        await until(reports, 1)
        assert written == [7]
        assert isinstance(reports[0], Saved)

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("what", ["train", "checkpoint", "release"])
def test_a_failure_is_reported_as_what_the_run_cannot_go_on_without(what: str) -> None:
    error = EngineError("the trainer's process is gone")

    class Dead(PaperTrainer):
        async def release(self, manifest: WeightManifest) -> None:
            raise error

    async def save(done: int) -> None:
        raise error

    async def scenario() -> None:
        reports: list[Any] = []
        trainer = Dead()
        trainer.broken = error
        station = TrainerStation(trainer, reports.append)
        if what == "train":
            station.train(BATCH, await some_groups(), probe=False)
        elif what == "checkpoint":
            station.checkpoint(save, 1)
        else:
            station.release([WeightManifest(0)])
        await until(reports, 1)
        assert reports == [Broken(error)]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_closing_gives_up_the_batch_and_waits_for_what_is_freed() -> None:
    class Slow(PaperTrainer):
        async def release(self, manifest: WeightManifest) -> None:
            await asyncio.sleep(0.02)
            await super().release(manifest)

    async def scenario() -> None:
        reports: list[Any] = []
        trainer = Slow(pace=100.0)
        station = TrainerStation(trainer, reports.append)
        station.train(BATCH, await some_groups(), probe=False)
        station.release([WeightManifest(0), WeightManifest(1)])
        await asyncio.sleep(0)
        await station.close()
        assert sorted(trainer.released) == [0, 1]
        assert not reports

    asyncio.run(asyncio.wait_for(scenario(), 20))
