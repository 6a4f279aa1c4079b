from __future__ import annotations

import asyncio

from entr_lab.pipeline import Admission, Pipeline, PipelineConfig, Prompt
from entr_lab.real.evaluation import Evaluations
from entr_lab.real.fleet import Fleet
from entr_lab.real.reports import Joined, Report
from entr_lab.real.station import Station
from entr_lab.real.version_shelf import VersionShelf
from entr_lab.real.weight_transfer import WeightManifest
from tests.real.coroutines import scenario
from tests.real.loop_fakes import PaperGenerator, play


class Scene:
    """A fleet of generators that never end a rollout, and a pipeline with prompts."""

    def __init__(self, count: int, room: int, admission: Admission | None = None, groups: int = 8) -> None:
        config = PipelineConfig(admission=admission or Admission.sync(), batch_groups=groups, group_size=2)
        self.pipeline = Pipeline(config)
        self.pipeline.add_prompts([Prompt(str(number)) for number in range(50)])
        self.shelf, self.reports = VersionShelf(), list[Report]()
        self.shelf.put(WeightManifest(0))
        self.generators = [PaperGenerator(tokens=1000, pace=10.0) for _ in range(count)]
        self.stations = {f"g{place}": self.station(f"g{place}", one) for place, one in enumerate(self.generators)}
        self.fleet = Fleet(self.stations, self.pipeline, room)

    def station(self, name: str, generator: PaperGenerator) -> Station:
        generator.pace = 0.0
        return Station(
            name, generator, play, self.shelf, self.reports.append, clear_cache=False, forced=False, max_tokens=500
        )

    async def up(self) -> None:
        self.fleet.bring_up()
        while len(self.reports) < len(self.stations):
            await asyncio.sleep(0)
        for report in self.reports:
            assert isinstance(report, Joined)
            self.pipeline.join(report.worker, report.version)
        for generator in self.generators:
            generator.pace = 10.0

    def advance(self) -> dict[str, str]:
        return self.fleet.advance(Evaluations(), 0.0)

    @property
    def active(self) -> list[int]:
        return [station.active for station in self.stations.values()]


@scenario
async def test_a_batch_that_is_smaller_than_the_room_is_shared_by_all() -> None:
    scene = Scene(count=4, room=100)
    await scene.up()
    assert scene.advance() == dict.fromkeys(scene.stations, "generates")
    assert scene.active == [4] * 4
    await scene.fleet.close()


@scenario
async def test_the_least_loaded_gets_the_next_and_nobody_more_than_the_room() -> None:
    scene = Scene(count=2, room=7, groups=4)
    await scene.up()
    scene.advance()
    assert scene.active == [4, 4]
    scene = Scene(count=2, room=3)
    await scene.up()
    scene.advance()
    assert scene.active == [3, 3]
    await scene.fleet.close()


@scenario
async def test_each_says_what_it_does() -> None:
    scene = Scene(count=2, room=4, groups=1)
    assert scene.advance() == {"g0": "starting", "g1": "starting"}
    assert scene.fleet.lost
    await scene.up()
    assert scene.advance() == {"g0": "generates", "g1": "waits: staleness"}
    assert not scene.fleet.idle
    assert not scene.fleet.lost
    await scene.fleet.close()
    assert scene.fleet.idle


@scenario
async def test_unwanted_rollouts_are_stopped_where_they_play() -> None:
    scene = Scene(count=1, room=2, admission=Admission.asynchronous(3, 2), groups=1)
    await scene.up()
    started = scene.pipeline.dispatch("g0", 2, 0.0)
    assert isinstance(started, list)
    for trajectory in started:
        scene.stations["g0"].start(trajectory, 0)
    await asyncio.sleep(0)
    scene.fleet.stop(started[:1])
    await asyncio.sleep(0)
    assert scene.active == [1]
    assert len(scene.generators[0].cancelled) == 1
    await scene.fleet.close()


@scenario
async def test_new_weights_are_loaded_where_the_pipeline_says_so() -> None:
    scene = Scene(count=2, room=2, admission=Admission.asynchronous(3, 2), groups=1)
    await scene.up()
    scene.shelf.put(WeightManifest(1))
    tickets = scene.pipeline.dispatch("g0", 2, 0.0)
    assert isinstance(tickets, list)
    for trajectory in tickets:
        scene.pipeline.complete(trajectory.ticket, ((0, 0, 1),), 0.0, 0.0)
    scene.pipeline.take()
    scene.pipeline.publish(1, 0.0)
    assert scene.advance() == {"g0": "loads", "g1": "loads"}
    await scene.fleet.close()
