"""The driver's end of the trainer, around handles that answer or fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from entr_lab.errors import DataError, EngineError
from entr_lab.real import trainer_actor
from entr_lab.real.config import RunConfig
from entr_lab.real.trainer_actor import RemoteTrainer, TrainerActor
from entr_lab.real.world import World


def test_the_actor_loads_once_and_not_before_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def host(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(publish=lambda: "manifest")

    aside: list[int] = []
    monkeypatch.setattr(trainer_actor, "TrainerHost", host)
    monkeypatch.setattr(trainer_actor, "step_aside", lambda: aside.append(len(made)))
    actor = TrainerActor(RunConfig(), "m", 56)
    with pytest.raises(EngineError, match="await ready"):
        actor.call("publish")
    assert actor.ready("state") == actor.ready()  # type: ignore[arg-type]
    assert [arguments[1:] for arguments in made] == [("m", 56, "state", World())]
    assert actor.call("publish") == "manifest"
    assert aside == [1]


def test_failures_become_sentences() -> None:
    exceptions = pytest.importorskip("ray.exceptions")

    def trainer(error: Exception) -> RemoteTrainer:
        async def fail() -> None:
            raise error

        return RemoteTrainer([SimpleNamespace(call=SimpleNamespace(remote=lambda *_: fail()))])

    def task_error(cause: Exception) -> Exception:
        return exceptions.RayTaskError("step", "traceback", cause)

    cases = [
        (task_error(DataError("no rollout")), DataError, "no rollout"),
        (task_error(KeyError("x")), EngineError, "failed in publish: KeyError"),
        (exceptions.ActorDiedError(), EngineError, "process is gone .*; resume from the last checkpoint"),
    ]
    for raised, kind, message in cases:
        with pytest.raises(kind, match=message):
            asyncio.run(trainer(raised).publish())


def test_every_process_is_called_and_the_first_answers() -> None:
    pytest.importorskip("ray")
    called: list[tuple[int, str]] = []

    def handle(rank: int) -> Any:
        async def call(method: str, *_: Any) -> int:
            called.append((rank, method))
            return 10 + rank

        async def ready(checkpoint: Any, place: Any) -> int:
            called.append((rank, f"ready at {place}"))
            return rank

        async def rendezvous() -> str:
            return "there"

        parts = {"call": call, "ready": ready, "rendezvous": rendezvous}
        return SimpleNamespace(**{name: SimpleNamespace(remote=part) for name, part in parts.items()})

    trainer = RemoteTrainer([handle(0), handle(1)])
    assert asyncio.run(trainer.ready()) == [0, 1]
    assert asyncio.run(trainer.publish()) == 10
    assert called == [(0, "ready at there"), (1, "ready at there"), (0, "publish"), (1, "publish")]


def test_a_process_that_fails_fails_the_call() -> None:
    exceptions = pytest.importorskip("ray.exceptions")

    async def well(*_: Any) -> str:
        await asyncio.sleep(60)
        return "never"

    async def dead(*_: Any) -> None:
        raise exceptions.ActorDiedError()

    handles = [SimpleNamespace(call=SimpleNamespace(remote=part)) for part in (well, dead)]
    with pytest.raises(EngineError, match="process is gone"):
        asyncio.run(asyncio.wait_for(RemoteTrainer(handles).publish(), 10))


def test_a_cluster_without_room_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_actor, "_ROOM", 0.01)
    group = SimpleNamespace(ready=lambda: asyncio.sleep(60), bundle_specs=[{"CPU": 1.0}])
    with pytest.raises(EngineError, match=r"no room for 2 training processes .*CPU.*lower trainer.processes"):
        asyncio.run(RemoteTrainer([None, None], group).ready())
