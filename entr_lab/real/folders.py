"""Folders that do not outlive their process for long: a run that was killed is tidied up by the next one. Ours."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["SHARED_MEMORY", "own_folder", "remove_orphans"]

SHARED_MEMORY: Final = Path("/dev/shm")

_PREFIX: Final = "entr-lab-"
_FOLDER: Final = re.compile(re.escape(_PREFIX) + r"(\d+)-(\d+)-\w+")


def _namespace() -> int:
    # Containers may share a folder but not process ids: a stranger's id says nothing about its life.
    return os.stat("/proc/self/ns/pid").st_ino % 10_000


def own_folder(root: Path) -> Path:
    """Make a folder under `root` that `remove_orphans` removes once this process is dead.

    The name is short: Ray puts sockets into such a folder, whose paths may have 107 bytes.
    """
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{_namespace()}-{os.getpid()}-", dir=root))


def remove_orphans(root: Path = SHARED_MEMORY) -> list[Path]:
    """Remove folders that dead processes made by `own_folder`, and return them."""
    gone = []
    for folder in root.glob(f"{_PREFIX}*"):
        match = _FOLDER.fullmatch(folder.name)
        if match and int(match[1]) == _namespace() and not Path(f"/proc/{match[2]}").exists():
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder)
    return gone
