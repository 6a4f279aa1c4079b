"""The nouns of the environments, and that the built-in classes fit the protocol."""

import inspect

import pytest

from entr_lab.real.environments.base import Environment, Step
from entr_lab.real.environments.registry import BUILT_IN, environment_class


def test_a_step_is_done_when_it_has_a_reward():
    """A reward of zero is a reward."""
    assert Step(reward=0.0).done
    assert not Step(context_ids=(1,)).done


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_classes_have_the_protocols_methods(name):
    """Names, parameters and coroutines."""
    build = environment_class(name)
    for method in ("reset", "step"):
        wanted = list(inspect.signature(getattr(Environment, method)).parameters)
        assert list(inspect.signature(getattr(build, method)).parameters) == wanted
        assert inspect.iscoroutinefunction(getattr(build, method))
    assert isinstance(inspect.getattr_static(build, "stop_ids"), property)
    assert list(inspect.signature(build).parameters)[:2] == ["codec", "tools"]
