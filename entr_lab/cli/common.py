"""What every command shares: strict JSON, the output folder, seeds, progress, and how errors reach the user."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console

from entr_lab.errors import ConfigError, RangeError

__all__ = [
    "available_cores",
    "console",
    "parse_seeds",
    "prepare_out",
    "progress_bar",
    "split_list",
    "strict_json",
    "write_json",
]

MAX_SEEDS = 4096

_claimed: dict[tuple[int, int], int] = {}
"""Descriptors of the output folders of this process, by device and inode: their locks end with the process."""


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def console(*, quiet: bool = False) -> Console:
    """Return the console for results; with `quiet` (under --json) everything but the JSON goes to stderr."""
    return Console(stderr=quiet, soft_wrap=False)


def strict_json(value: Any) -> str:
    """Return JSON that any parser reads: NaN and infinities become null, dataclasses and arrays plain data."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and torch, neither imported here
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    return str(value)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(strict_json(value) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def prepare_out(out: Path | None) -> Path | None:
    """Create the output folder and prove that it can be written, before any work.

    Raises:
        ConfigError: it is no folder, cannot be written, holds files already, or is another running command's: nothing
            is overwritten.
    """
    if out is None:
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".entr-lab-write-test"
        probe.touch()
        probe.unlink()
        occupied = any(out.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"--out {str(out)!r} cannot be written ({reason}); choose another folder.") from None
    if occupied:
        raise ConfigError(f"--out {str(out)!r} already holds files; choose a new or empty folder.")
    if not _claim(out):
        raise ConfigError(f"--out {str(out)!r} belongs to a command that is still running; choose another folder.")
    return out


def _claim(folder: Path) -> bool:
    """Lock `folder` until the process ends; return False if another process holds it.

    Where folders cannot be locked (Windows, some network file systems) every claim succeeds.
    """
    try:
        import fcntl
    except ImportError:
        return True
    status = folder.stat()
    if (status.st_dev, status.st_ino) in _claimed:
        return True
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        return not isinstance(error, BlockingIOError)
    _claimed[status.st_dev, status.st_ino] = descriptor
    return True


def parse_seeds(text: str) -> list[int]:
    """Read `8` (seeds 0 to 7), `100-107` or `3,5,9-11`.

    Raises:
        ConfigError: the text is not of that form, or a seed is given twice.
        RangeError: there are no seeds, or more than 4096.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) == 1 and re.fullmatch(r"-?[0-9]{1,18}", pieces[0]):
        count = int(pieces[0])
        if not 1 <= count <= MAX_SEEDS:
            raise RangeError(f"--seeds must be a count in [1, {MAX_SEEDS}], got {count}; 8 gives usable intervals.")
        return list(range(count))
    seeds: list[int] = []
    for piece in pieces:
        first, dash, last = piece.partition("-")
        if not re.fullmatch(r"[0-9]{1,18}(-[0-9]{1,18})?", piece):
            raise ConfigError(f"cannot read --seeds {text!r}; write a count (8), a range (100-107) or a list (3,5,9).")
        stop = int(last) if dash else int(first)
        if stop < int(first) or stop - int(first) >= MAX_SEEDS:
            raise RangeError(f"--seeds range {piece!r} is empty or longer than {MAX_SEEDS}; write first-last.")
        seeds.extend(range(int(first), stop + 1))
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"--seeds {text!r} names a seed twice; every seed counts once in an interval.")
    return seeds


def split_list(text: str) -> list[str]:
    """Split at commas outside parentheses: `entr(tau=1.6,eps=0.1),icepop` has two items."""
    items, depth, current = [], 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            items.append(current.strip())
            current = ""
        else:
            current += character
    return [item for item in [*items, current.strip()] if item]


@contextmanager
def progress_bar(description: str, *, enabled: bool = True) -> Iterator[Any]:
    """Show a progress bar with time left on stderr; yields `update(done, total, text=None)`."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not (enabled and sys.stderr.isatty())) as bar:
        task = bar.add_task(description, total=None)

        def update(done: float, total: float, text: str | None = None) -> None:
            bar.update(task, completed=done, total=total, description=text or description)

        yield update
