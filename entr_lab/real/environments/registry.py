"""Environments by name: the built-in ones, and your own as `module:Class`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final

from entr_lab.errors import ConfigError, check_choice
from entr_lab.real.config_sections import EnvironmentConfig
from entr_lab.real.environments.base import Codec, Environment
from entr_lab.real.environments.tools import ToolRunner

__all__ = ["BUILT_IN", "environment_class", "environment_factory"]

BUILT_IN: Final[dict[str, str]] = {
    "noted-sum": "entr_lab.real.environments.noted_sum:NotedSum",
    "arithmetic": "entr_lab.real.environments.arithmetic:Arithmetic",
    "calculator": "entr_lab.real.environments.calculator:Calculator",
    "search": "entr_lab.real.environments.search:Search",
}


def environment_class(name: str) -> Any:
    """Return the class of a name.

    Raises:
        UnknownNameError: there is no such built-in name.
        ConfigError: the module or the class cannot be found, or it lacks `reset` or `step`.
    """
    target = name if ":" in name else BUILT_IN[check_choice("environment", name, BUILT_IN)]
    module_name, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot find environment {name!r}: {error}; write module:Class.") from None
    for method in ("reset", "step"):
        if not inspect.iscoroutinefunction(getattr(found, method, None)):
            raise ConfigError(f"environment {name!r} has no coroutine {method!r}; see entr_lab.real.environments.base.")
    return found


def environment_factory(config: EnvironmentConfig, codec: Codec, seed: int = 0) -> Callable[[], Environment]:
    """Return what makes a fresh environment for each trajectory; one is made at once, to prove the options.

    Raises:
        ConfigError: see `environment_class`, or the options do not fit the class.
    """
    build = environment_class(config.name)
    tools = ToolRunner(config.tool_latency, config.tool_latency_sigma, config.tool_timeout, config.tool_max_chars, seed)

    def make() -> Environment:
        made: Environment = build(codec, tools, **config.options)
        return made

    try:
        make()
    except TypeError as error:
        raise ConfigError(f"environment {config.name!r} refuses its options {config.options}: {error}.") from None
    return make
