"""Prompts by number: generated without end, or from JSONL or Parquet, in an order that a seed fixes.

A stream is a function of the number alone, so the whole data cursor of a run is one integer.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from entr_lab.errors import ConfigError, DataError
from entr_lab.real.config_sections import DataConfig, EnvironmentConfig
from entr_lab.real.environments.base import Sample
from entr_lab.real.environments.registry import environment_class

__all__ = ["FileSamples", "GeneratedSamples", "SampleStream", "open_samples"]


class SampleStream(Protocol):
    """Samples without end."""

    def sample(self, index: int) -> Sample:
        """Return sample `index`; its id is unique in the stream."""


class GeneratedSamples:
    """What an environment's own `generate` makes.

    Args:
        build: the environment's class.
        seed: of the run.
        options: of the environment.
    """

    def __init__(self, build: Any, seed: int, options: dict[str, Any]) -> None:
        self._generate, self._seed, self._options = build.generate, seed, options

    def sample(self, index: int) -> Sample:
        """Return sample `index`."""
        made: Sample = self._generate(self._seed, index, **self._options)
        return made


class FileSamples:
    """The rows of a file, over and over; each epoch in its own order.

    Args:
        path: .jsonl or .parquet.
        fields: names of its columns.
        seed: of the run.

    Raises:
        ConfigError: the file cannot be read or is of another kind.
        DataError: a row lacks the prompt or the ground truth.
    """

    def __init__(self, path: Path, fields: DataConfig, seed: int) -> None:
        self._rows = [_sample(row, number, path, fields) for number, row in enumerate(_read(path), start=1)]
        if not self._rows:
            raise DataError(f"{str(path)!r} holds no row.")
        self._shuffle, self._seed = fields.shuffle, seed
        self._epoch, self._order = -1, np.arange(len(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def sample(self, index: int) -> Sample:
        """Return sample `index`; its id carries the epoch from the second one on."""
        epoch, place = divmod(index, len(self._rows))
        if self._shuffle and epoch != self._epoch:
            self._order = np.random.default_rng((self._seed, epoch)).permutation(len(self._rows))
            self._epoch = epoch
        row = self._rows[int(self._order[place])]
        return row if not epoch else Sample(f"{row.id}/{epoch}", row.prompt, row.ground_truth, row.source, row.extra)


def open_samples(data: DataConfig, environment: EnvironmentConfig, seed: int) -> SampleStream:
    """Return the stream that a configuration names.

    Raises:
        ConfigError: there is neither a file nor a generator, or the file cannot be read.
        DataError: a row cannot be used.
    """
    if data.path:
        return FileSamples(Path(data.path), data, seed)
    build = environment_class(environment.name)
    if not hasattr(build, "generate"):
        raise ConfigError(f"environment {environment.name!r} generates no prompts; set data.path to a file.")
    return GeneratedSamples(build, seed, environment.options)


def _read(path: Path) -> list[dict[str, Any]]:
    if path.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"data.path {str(path)!r} is neither .jsonl nor .parquet; convert it.")
    if not path.is_file():
        raise ConfigError(f"data.path {str(path)!r} is not there.")
    if path.suffix == ".jsonl":
        return _read_jsonl(path)
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ConfigError(f"{str(path)!r} is not a readable Parquet file: {error}") from None
    return rows


def _read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{str(path)!r}, line {number}: not JSON ({error}).") from None
        if not isinstance(row, dict):
            raise DataError(f"{str(path)!r}, line {number}: an object is wanted, got {type(row).__name__}.")
        rows.append(row)
    return rows


def _sample(row: dict[str, Any], number: int, path: Path, fields: DataConfig) -> Sample:
    values = {}
    for key in ("prompt", "answer", "source"):
        dotted = getattr(fields, f"{key}_field")
        here: Any = row
        for name in dotted.split("."):
            here = here.get(name) if isinstance(here, dict) else None
        if here is None and key != "source":
            columns = ", ".join(sorted(row))
            raise DataError(f"{str(path)!r}, row {number}: no {dotted!r} among {columns}; set data.{key}_field.")
        values[key] = here
    prompt = values["prompt"]
    messages = isinstance(prompt, list) and all(isinstance(m, dict) and {"role", "content"} <= set(m) for m in prompt)
    if not (isinstance(prompt, str) and prompt) and not (messages and prompt):
        raise DataError(f"{str(path)!r}, row {number}: the prompt is neither text nor a list of chat messages.")
    used = {name.partition(".")[0] for name in (fields.prompt_field, fields.answer_field, fields.source_field)}
    extra = {key: value for key, value in row.items() if key not in used and key != "id"}
    return Sample(str(row.get("id", number)), prompt, values["answer"], str(values["source"] or ""), extra)
