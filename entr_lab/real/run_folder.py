"""The files of one run, and how they go on after a crash: everything in them up to the checkpoint, nothing after it.

    RUN/config.toml  events.jsonl  metrics.jsonl  evaluations.jsonl  checkpoints/  trace/  tensorboard/

The event log is one log through all resumes: it is cut back to the length that the checkpoint noted and continued.
Ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from entr_lab.errors import ConfigError, DataError, EngineError
from entr_lab.pipeline import Event, encode
from entr_lab.real.config import RunConfig
from entr_lab.real.config_io import dump_config, load_config

__all__ = ["EventFile", "MetricsFile", "keep_config", "new_run", "open_run"]


def new_run(folder: Path, config: RunConfig) -> None:
    """Make the folder of a run and write its configuration.

    Raises:
        ConfigError: the folder holds a run already, or cannot be written.
    """
    if (folder / "config.toml").exists() or (folder / "checkpoints").exists():
        raise ConfigError(f"{str(folder)!r} holds a run already; resume it with --resume, or choose another folder.")
    keep_config(folder, config)


def keep_config(folder: Path, config: RunConfig) -> None:
    """Write the configuration of a run, as it is by now, in one step.

    Raises:
        ConfigError: the folder cannot be written.
    """
    partial, text = folder / "config.toml.partial", dump_config(config)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, folder / "config.toml")
    except OSError as error:
        raise ConfigError(f"{str(folder)!r} cannot be written ({error.strerror}); choose another folder.") from None


def open_run(folder: Path) -> RunConfig:
    """Return the configuration of a run that was begun.

    Raises:
        ConfigError: the folder holds no run.
    """
    if not (folder / "config.toml").is_file():
        raise ConfigError(f"{str(folder)!r} holds no run (no config.toml); give the folder of a run to --resume.")
    return load_config(folder / "config.toml")


class EventFile:
    """The pipeline's log on disk; `write` is its sink.

    Args:
        path: of the file.
        length: bytes to keep of what is there; 0 begins anew.

    Raises:
        DataError: the file is shorter than `length`: it does not belong to the checkpoint.
    """

    def __init__(self, path: Path, length: int = 0) -> None:
        there = path.stat().st_size if path.exists() else 0
        if there < length:
            raise DataError(
                f"{str(path)!r} has {there} bytes, but the checkpoint was made at {length}; resume from the whole run."
            )
        self._path = path
        self._file = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(length)
        self._file.seek(length)
        self.length = length
        """Bytes written so far."""

    def write(self, event: Event) -> None:
        """Append one event.

        Raises:
            EngineError: the disk is full or gone.
        """
        with _one_sentence(self._path):
            self.length += self._file.write(encode(event))

    def sync(self) -> int:
        """Bring everything to the disk and return the length.

        Raises:
            EngineError: the disk is full or gone.
        """
        with _one_sentence(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        return self.length

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class MetricsFile:
    """One JSON object a line, each with its step; NaN and infinities become null.

    Args:
        path: of the file.
        before: keep the lines of steps below it, drop the rest.

    Raises:
        DataError: a line that is there is none of ours.
    """

    def __init__(self, path: Path, before: int = 0) -> None:
        kept = b""
        if before and path.exists():
            kept = b"".join(_lines_before(path, before))
        self._path = path
        with _one_sentence(path):
            self._file = path.open("wb")
            self._file.write(kept)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append the numbers of one batch, or of an evaluation after `step` batches.

        Raises:
            EngineError: the disk is full or gone.
        """
        plain = {name: _finite(value) for name, value in metrics.items()}
        line = json.dumps({"step": step, **plain}, allow_nan=False)
        with _one_sentence(self._path):
            self._file.write(line.encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines_before(path: Path, step: int) -> Iterator[bytes]:
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        try:
            if line.endswith(b"\n") and json.loads(line)["step"] < step:
                yield line
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"line {number} of {str(path)!r} is not one that a run has written; move the file away to go on."
            ) from None


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(f"cannot write {str(path)!r} ({error.strerror}); free space and resume the run.") from None
