"""Environments by name, and a user's own."""

import pytest

from entr_lab.errors import ConfigError, UnknownNameError
from entr_lab.real.config_sections import EnvironmentConfig
from entr_lab.real.environments.base import Step
from entr_lab.real.environments.registry import BUILT_IN, environment_class, environment_factory
from entr_lab.real.environments.vocabulary import FixedVocabulary

CODEC = FixedVocabulary()


class Mine:
    """An environment of a user's own, named as module:Class."""

    stop_ids = ()

    def __init__(self, codec, tools, size=1):
        self.size, self.tools = size, tools

    async def reset(self, sample):
        return [1]

    async def step(self, token_ids):
        return Step(reward=float(len(token_ids) == self.size))


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_names(name):
    """Every name resolves to a class with its own generator."""
    if name == "search":
        pytest.importorskip("rank_bm25")
    assert environment_class(name).generate(0, 0).source == name


def test_module_and_class():
    """Options and tool settings reach a class of one's own; each trajectory gets a fresh object."""
    config = EnvironmentConfig(name=f"{__name__}:Mine", options={"size": 3}, tool_latency=1.5)
    make = environment_factory(config, CODEC)

    assert make() is not make()
    assert make().size == 3
    assert make().tools.latency == 1.5


@pytest.mark.parametrize(
    ("name", "message"),
    [("nowhere:Mine", "nowhere"), (f"{__name__}:Yours", "Yours"), ("json:dumps", "reset"), (":", "module:Class")],
)
def test_wrong_targets_are_named(name, message):
    """What was not found is in the sentence."""
    with pytest.raises(ConfigError, match=message):
        environment_class(name)


def test_wrong_names_and_options():
    """The nearest name is offered; unknown options are refused before the run."""
    with pytest.raises(UnknownNameError, match="did you mean 'calculator'"):
        environment_class("calculater")
    with pytest.raises(ConfigError, match="colour"):
        environment_factory(EnvironmentConfig(name="calculator", options={"colour": 1}), CODEC)
