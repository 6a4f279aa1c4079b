"""The classes that the loop is handed have what its ports ask for, by name and by argument."""

import inspect

import pytest

from entr_lab.real.ports import GeneratorPort, TrainerPort
from entr_lab.real.remote_generator import RemoteGenerator
from entr_lab.real.trainer_actor import RemoteTrainer


@pytest.mark.parametrize(("port", "kind"), [(GeneratorPort, RemoteGenerator), (TrainerPort, RemoteTrainer)])
def test_implementations_have_every_coroutine_of_their_port(port, kind):
    wanted = [name for name, member in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")]

    assert wanted
    for name in wanted:
        assert inspect.iscoroutinefunction(getattr(kind, name)), name
        expected = list(inspect.signature(getattr(port, name)).parameters)
        assert list(inspect.signature(getattr(kind, name)).parameters)[: len(expected)] == expected, name
