"""Reading and writing the configuration: TOML in, `--set a.b=c` on top, the resolved TOML out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn, get_args

from pydantic import BaseModel, ValidationError

from entr_lab.errors import ConfigError, UnknownNameError, nearest
from entr_lab.real.config import RunConfig

__all__ = ["dump_config", "load_config"]


def load_config(path: Path | None = None, settings: Iterable[str] = ()) -> RunConfig:
    """Return the validated configuration.

    Args:
        path: a TOML file; None takes the defaults.
        settings: `section.key=value`, applied after the file; values are TOML, bare words are strings.

    Raises:
        ConfigError: the file cannot be read, a key is unknown (with the nearest name), a value is out of bounds, or two
            settings exclude each other.
    """
    tree = _read(path) if path else {}
    for setting in settings:
        _apply(tree, setting)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        _explain(error)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}; give a TOML file.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not valid TOML: {error}; correct it there.") from None


def _apply(tree: dict[str, Any], setting: str) -> None:
    key, sign, text = setting.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not sign or not all(names):
        raise ConfigError(f"cannot read --set {setting!r}; write section.key=value, e.g. trainer.learning_rate=1e-4.")
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {"value": text.strip()}
    if read.keys() != {"value"}:
        raise ConfigError(f"--set {setting!r} has a second line with a key of its own; give each key a --set.")
    value = read["value"]
    here = tree
    for name in names[:-1]:
        here = here.setdefault(name, {})
        if not isinstance(here, dict):
            raise ConfigError(f"--set {setting!r} goes into {name!r}, which is a value and not a section.")
    here[names[-1]] = value


def _explain(error: ValidationError) -> NoReturn:
    """Turn pydantic's first complaint into one sentence."""
    first, *others = error.errors()
    more = f" ({len(others)} more after this one.)" if others else ""
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _known(first["loc"][:-1])
        guess = nearest(str(first["loc"][-1]), known)
        hint = f"did you mean {guess!r}?" if guess else f"known: {', '.join(known)}."
        raise UnknownNameError(f"unknown key {where!r} in the configuration; {hint}{more}") from None
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        raise type(cause)(str(cause)) from None
    message = first["msg"][:1].lower() + first["msg"][1:]
    raise ConfigError(
        f"{where} = {first['input']!r}: {message}; correct it in the file, or with --set {where}=VALUE.{more}"
    ) from None


def _known(location: tuple[int | str, ...]) -> list[str]:
    model: Any = RunConfig
    for part in location:
        annotation = model.model_fields[str(part)].annotation
        model = next((a for a in (annotation, *get_args(annotation)) if isinstance(a, type)), None)
        if model is None or not issubclass(model, BaseModel):
            return []
    return sorted(model.model_fields)


def dump_config(config: RunConfig) -> str:
    """Return the resolved configuration as TOML that `load_config` reads back to an equal one.

    Raises:
        ConfigError: an option of the environment, or a text, is nothing that comes back from TOML as it was.
    """
    tree = config.model_dump(mode="json", exclude_none=True)
    lines = [f"{key} = {_toml(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for name, section in tree.items():
        if isinstance(section, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in section.items())]
    text = "\n".join(lines) + "\n"
    try:
        text.encode()
        same = RunConfig.model_validate(tomllib.loads(text)) == config
    except ValueError:
        same = False
    if not same:
        raise ConfigError(
            "the configuration does not come back from TOML as it was; use finite numbers, printable text, lists and "
            "tables of them in environment.options and in names."
        )
    return text


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML takes no control character
