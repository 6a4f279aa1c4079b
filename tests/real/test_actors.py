from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from entr_lab.errors import EngineError
from entr_lab.real import actors
from entr_lab.real.actors import GeneratorActor
from entr_lab.real.desk import Order, Round
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.records import SampleCall, SamplingSpec
from entr_lab.real.weight_transfer import WeightManifest
from tests.real.fake_engine import FakedGenerator, FakeProcess

SETTINGS = EngineSettings(model="m", dtype="float32")


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(actors.os, "_exit", found.append)
    monkeypatch.setattr(actors, "_FAREWELL", 0.01)
    monkeypatch.setattr(actors, "_WATCH", 0.01)
    return found


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """Calls by which actors have stepped aside; the process of the tests itself does not."""
    calls: list[SimpleNamespace] = []
    monkeypatch.setattr(actors, "step_aside", lambda: calls.append(SimpleNamespace()))
    monkeypatch.setattr(actors.EngineCpu, "claim", lambda: None)
    return calls


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch, aside: list[SimpleNamespace]) -> list[FakedGenerator]:
    """The generators that actors have started."""
    made: list[FakedGenerator] = []

    async def start(settings: EngineSettings) -> FakedGenerator:
        made.append(FakedGenerator(settings))
        return made[-1]

    monkeypatch.setattr(actors.Generator, "start", start)
    return made


def test_an_actor_starts_its_engine_once_and_not_before_ready(generators: list[FakedGenerator]) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(SETTINGS)
        with pytest.raises(EngineError, match="await ready"):
            await actor.health()
        assert await asyncio.gather(actor.ready(), actor.ready()) == [os.getpid()] * 2
        assert len(generators) == 1
        await actor.update_weights(WeightManifest(3), clear_cache=True)
        assert (await actor.health())["version"] == 3
        assert (await actor.generate([1], SamplingSpec()))[0].weight_version.tolist() == [3]
        order = Order(8, SampleCall((1,), SamplingSpec()), 1)
        reply = await actor.exchange(Round(("c", 0), None, 0, (order,), frozenset({8}), 9, True))
        ((number, (completion,)),) = reply.answers
        assert (number, completion.weight_version.tolist()) == (8, [3])
        await actor.shutdown()

    asyncio.run(scenario())


@pytest.mark.parametrize(("device", "times"), [("cpu", 1), ("cuda", 0)])
def test_on_cpu_an_actor_lets_its_engine_go_first(
    generators: list[FakedGenerator], aside: list[SimpleNamespace], device: str, times: int
) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(EngineSettings(model="m", device=device))  # type: ignore[arg-type]
        await actor.ready()
        await actor.ready()
        await actor.shutdown()

    asyncio.run(scenario())
    assert len(aside) == times


@pytest.mark.parametrize(("device", "own", "seats"), [("cpu", True, 1), ("cpu", False, 0), ("cuda", True, 0)])
def test_a_cpu_engine_gets_a_cpu_until_the_end_unless_told_otherwise(
    generators: list[FakedGenerator], monkeypatch: pytest.MonkeyPatch, device: Any, own: bool, seats: int
) -> None:
    told: list[str] = []

    class Cpu:
        def seat(self, engine: int) -> None:
            told.append(f"seat {engine}")

        def release(self) -> None:
            told.append("release")

    monkeypatch.setattr(actors.EngineCpu, "claim", Cpu)

    async def scenario() -> None:
        actor = GeneratorActor(EngineSettings(model="m", device=device, own_cpu=own))
        await actor.ready()
        await actor.shutdown()

    asyncio.run(scenario())
    assert told == [f"seat {FakeProcess.pid}", "release"] * seats


def test_a_request_of_vllms_protocol_is_one_part_of_an_update(generators: list[FakedGenerator]) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(EngineSettings(model="m", device="cuda", transfer="nccl"))
        await actor.ready()
        update = asyncio.create_task(actor.update_weights(WeightManifest(3)))
        await actor.start_weight_update()
        await actor.update_weights(SimpleNamespace(update_info={}))
        await actor.finish_weight_update()
        await actor.update_weight_version("9")  # vLLM's own call; the manifest decides
        await update
        assert generators[0].version == 3
        await actor.shutdown()

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore")
def test_the_actor_has_every_method_that_vllms_client_calls() -> None:
    import ast
    import importlib.util

    for name in (
        "init_weight_transfer_engine",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
        "update_weight_version",
        "shutdown_weight_transfer_engine",
    ):
        assert asyncio.iscoroutinefunction(getattr(GeneratorActor, name))
    if importlib.util.find_spec("vllm") is None:
        return
    root = Path(next(iter(importlib.util.find_spec("vllm").submodule_search_locations)))
    tree = ast.parse((root / "distributed/weight_transfer/clients.py").read_text())
    (client,) = [node for node in tree.body if getattr(node, "name", "") == "RayVLLMWeightSyncClient"]
    called = {
        node.value.attr
        for node in ast.walk(client)
        if isinstance(node, ast.Attribute) and node.attr == "remote" and isinstance(node.value, ast.Attribute)
    }
    assert called
    assert all(hasattr(GeneratorActor, name) for name in called)


def test_an_actor_whose_engine_died_answers_and_leaves(generators: list[FakedGenerator], exits: list[int]) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(SETTINGS)
        await actor.ready()
        await actor.update_weights(WeightManifest(3))
        generators[0].engine.fail["generate"] = RuntimeError("broken pipe")
        generators[0]._process.up = False
        with pytest.raises(EngineError, match="died"):
            await actor.generate([1], SamplingSpec())
        with pytest.raises(EngineError, match="leaving to be started again"):
            await actor.ready()
        await asyncio.sleep(0.1)
        assert set(exits) == {1}

    asyncio.run(scenario())


def test_an_idle_actor_notices_that_its_engine_died(generators: list[FakedGenerator], exits: list[int]) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(SETTINGS)
        await actor.ready()
        await asyncio.sleep(0.05)
        assert exits == []
        generators[0]._process.up = False
        await asyncio.sleep(0.1)
        assert exits == [1]

    asyncio.run(scenario())


def test_an_error_that_leaves_the_engine_alive_does_not_end_the_actor(
    generators: list[FakedGenerator], exits: list[int]
) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(SETTINGS)
        await actor.ready()
        with pytest.raises(EngineError, match="push a version"):
            await actor.generate([1], SamplingSpec())
        await asyncio.sleep(0.05)
        assert exits == []
        await actor.shutdown()

    asyncio.run(scenario())


def test_what_an_orderly_end_cuts_off_does_not_count_as_a_death(
    generators: list[FakedGenerator], exits: list[int]
) -> None:
    async def scenario() -> None:
        actor = GeneratorActor(SETTINGS)
        await actor.ready()
        await actor.update_weights(WeightManifest(3))
        generators[0].engine.free.clear()
        cut = asyncio.create_task(actor.generate([1], SamplingSpec()))
        await asyncio.sleep(0.01)
        generators[0].engine.fail["check_weights"] = RuntimeError("broken pipe")
        await actor.shutdown()
        with pytest.raises(EngineError):
            await actor.update_weights(WeightManifest(4))
        cut.cancel()
        await asyncio.sleep(0.05)
        assert exits == []

    asyncio.run(scenario())
