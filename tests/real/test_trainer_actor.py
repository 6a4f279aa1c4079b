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


def test_the_actor_loads_once_and_not_before_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def host(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(publish=lambda: "manifest")

    monkeypatch.setattr(trainer_actor, "TrainerHost", host)
    actor = TrainerActor(RunConfig(), "m", 56)
    with pytest.raises(EngineError, match="await ready"):
        actor.call("publish")
    assert actor.ready("state") == actor.ready()  # type: ignore[arg-type]
    assert [arguments[1:] for arguments in made] == [("m", 56, "state")]
    assert actor.call("publish") == "manifest"


def test_failures_become_sentences() -> None:
    exceptions = pytest.importorskip("ray.exceptions")

    def trainer(error: Exception) -> RemoteTrainer:
        async def fail() -> None:
            raise error

        return RemoteTrainer(SimpleNamespace(call=SimpleNamespace(remote=lambda *_: fail())))

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
