"""What a station reports, and in which order."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from entr_lab.pipeline import Trajectory
from entr_lab.real import station
from entr_lab.real.reports import Evaluated, Failed, Finished, Joined, Loaded, Lost
from entr_lab.real.station import Station
from entr_lab.real.version_shelf import VersionShelf
from entr_lab.real.weight_transfer import WeightManifest

from .loop_fakes import PaperGenerator, play


class Scene:
    """A station with its reports at hand."""

    def __init__(self, generator: PaperGenerator, play: Any = play, forced: bool = False) -> None:
        self.shelf = VersionShelf()
        for version in range(3):
            self.shelf.put(WeightManifest(version))
        self.reports: list[Any] = []
        self.station = Station(
            "g", generator, play, self.shelf, self.reports.append, clear_cache=True, forced=forced, max_tokens=12
        )

    async def until(self, kind: type, count: int = 1) -> None:
        while sum(isinstance(report, kind) for report in self.reports) < count:
            await asyncio.sleep(0)


def trajectory(ticket: int) -> Trajectory:
    return Trajectory(ticket, 0, ticket, "g", 0, -1, 1, 0.0)


def test_a_rollout_with_new_tokens_comes_after_the_update_that_brought_them() -> None:
    class LateWord(PaperGenerator):
        """Its engine samples under new weights long before the update returns."""

        async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> None:
            self.version = manifest.version
            await asyncio.sleep(0.05 if self.loads else 0)
            self.loads.append(manifest.version)

    async def scenario() -> None:
        scene = Scene(LateWord(tokens=3))
        scene.station.bring_up()
        await scene.until(Joined)
        scene.shelf.put(WeightManifest(3))
        scene.station.update(3)
        await asyncio.sleep(0)
        scene.station.start(trajectory(0), 0)
        await scene.until(Finished)
        assert [type(report) for report in scene.reports] == [Joined, Loaded, Finished]
        assert set(scene.reports[-1].rollout.weight_version.tolist()) == {3}
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_death_is_reported_once_and_the_dead_report_nothing() -> None:
    async def scenario() -> None:
        generator = PaperGenerator(pace=0.001)
        scene = Scene(generator)
        scene.station.bring_up()
        await scene.until(Joined)
        for ticket in range(5):
            scene.station.start(trajectory(ticket), ticket)
        generator.dead = True
        await scene.until(Lost)
        await asyncio.sleep(0.05)
        assert [type(report) for report in scene.reports] == [Joined, Lost]
        assert scene.station.active == 0
        scene.station.bring_up(revive=True)
        await scene.until(Joined, 2)
        assert scene.station.version == 2
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_stopped_rollout_is_cancelled_and_says_nothing() -> None:
    async def scenario() -> None:
        generator = PaperGenerator(pace=0.01)
        scene = Scene(generator)
        scene.station.bring_up()
        await scene.until(Joined)
        scene.station.start(trajectory(7), 7)
        await asyncio.sleep(0.015)
        scene.station.stop(7)
        scene.station.stop(8)
        await asyncio.sleep(0.05)
        assert generator.cancelled == ["t7/0"]
        assert [type(report) for report in scene.reports] == [Joined]
        assert scene.station.idle

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_rollout_that_swallows_its_cancellation_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station, "_DEAF", 0.01)

    async def deaf(generator: Any, number: int, name: str) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        await asyncio.sleep(30)

    async def scenario() -> None:
        scene = Scene(PaperGenerator(), deaf)
        scene.station.bring_up()
        await scene.until(Joined)
        scene.station.start(trajectory(0), 0)
        await asyncio.sleep(0.01)
        await scene.station.close()
        assert scene.station.idle

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_an_evaluation_of_an_earlier_life_says_nothing() -> None:
    """Its tool takes longer than the generator's death and return; the evaluation is made again by then."""

    async def scenario() -> None:
        generator, slow = PaperGenerator(pace=0.001), asyncio.Event()

        async def judge(*arguments: Any) -> Any:
            await slow.wait()
            return await play(*arguments)

        scene = Scene(generator)
        scene.station.bring_up()
        await scene.until(Joined)
        scene.station.evaluate(judge, [1, 2])
        scene.station.start(trajectory(0), 0)
        generator.dead = True
        await scene.until(Lost)
        scene.station.bring_up(revive=True)
        await scene.until(Joined, 2)
        scene.station.evaluate(play, [1, 2])
        await scene.until(Evaluated)
        slow.set()
        await asyncio.sleep(0.05)
        assert sum(isinstance(report, Evaluated) for report in scene.reports) == 1
        assert scene.station.idle
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_mistake_of_an_environment_is_no_death() -> None:
    async def wrong(*_: Any) -> Any:
        raise ValueError("mistake")

    async def scenario() -> None:
        scene = Scene(PaperGenerator(), wrong)
        scene.station.bring_up()
        await scene.until(Joined)
        scene.station.start(trajectory(0), 0)
        await scene.until(Failed)
        assert scene.station.present
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_held_out_samples_are_played_under_the_newest_weights() -> None:
    """In mode exact every token is of the newest version, and they go before training rollouts that wait."""

    async def scenario() -> None:
        generator = PaperGenerator(tokens=4)
        scene = Scene(generator, forced=True)
        scene.station.bring_up()
        await scene.until(Joined)
        for ticket in range(3):
            scene.station.start(Trajectory(ticket, 0, ticket, "g", 0, 1, 1, 0.0), ticket)
        scene.station.evaluate(play, range(10, 14))
        await scene.until(Finished, 3)
        (told,) = [report for report in scene.reports if isinstance(report, Evaluated)]
        assert sorted(rollout.sample["id"] for rollout in told.rollouts) == ["s10", "s11", "s12", "s13"]
        assert {int(v) for rollout in told.rollouts for v in rollout.weight_version} == {2}
        assert told.failed == 0
        assert generator.loads[0] == 2  # the newest at first, and the evaluation needs no other load
        assert isinstance(scene.reports[1], Evaluated)
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_evaluation_on_a_dead_generator_is_a_death() -> None:
    async def scenario() -> None:
        generator = PaperGenerator(pace=0.001)
        scene = Scene(generator)
        scene.station.bring_up()
        await scene.until(Joined)
        generator.dead = True
        scene.station.evaluate(play, range(3))
        await scene.until(Lost)
        assert [type(report) for report in scene.reports] == [Joined, Lost]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_what_fails_in_an_evaluation_is_counted() -> None:
    async def some(generator: Any, sample: int, request: str) -> Any:
        if sample == 1:
            raise ValueError("mistake")
        return await play(generator, sample, request)

    async def scenario() -> None:
        scene = Scene(PaperGenerator())
        scene.station.bring_up()
        await scene.until(Joined)
        assert scene.station.up_to_date
        scene.station.evaluate(some, range(3))
        await scene.until(Evaluated)
        assert (len(scene.reports[-1].rollouts), scene.reports[-1].failed) == (2, 1)
        scene.shelf.put(WeightManifest(3))
        assert not scene.station.up_to_date
        await scene.station.close()

    asyncio.run(asyncio.wait_for(scenario(), 20))
