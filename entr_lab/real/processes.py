"""The processes that an engine or Ray starts under this one: found, let go first, and stopped for certain. Ours."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

__all__ = ["StartedProcesses", "step_aside", "threads_of"]

_PATIENCE = 10.0
"""Seconds that a process gets to end by itself before it is killed."""


_ASIDE = 5
"""Niceness by which a process steps aside."""


def threads_of(process: int) -> list[int]:
    """Return the threads of a process, as Linux numbers them; none if it is gone or the system is another."""
    return [int(path.name) for path in Path(f"/proc/{process}/task").glob("*")]


def step_aside() -> None:
    """Let other processes of this user, above all those that this one has started, go before it.

    An engine's core wants one CPU for itself; what prepares its input and reads its output would otherwise push it off
    that CPU some hundred times a second. Niceness belongs to a thread on Linux, and new threads inherit it.
    """
    for thread in threads_of(os.getpid()) or [0]:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _ASIDE)


class StartedProcesses:
    """Remembers which children this process had before, so as to find those that were started since.

    Args:
        folder: of theirs; removed when they have stopped.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._before = {child.pid for child in _children()}
        self._children: list[psutil.Process] = []
        self._core: psutil.Process | None = None

    def find(self) -> None:
        """Take all children, and theirs, that are new."""
        fresh = [child for child in _children() if child.pid not in self._before]
        # Python's own tracker of semaphores belongs to this process and cleans up after it.
        self._children = [child for child in fresh if "resource_tracker" not in _command(child)]
        named = [child for child in self._children if "EngineCore" in _command(child)]
        self._core = next(iter(named or self._children), None)

    @property
    def pid(self) -> int | None:
        """Of the engine's core, or the first of the processes; None if there is none."""
        return None if self._core is None else self._core.pid

    def alive(self) -> bool:
        """Whether the core still runs; a zombie does not."""
        import psutil

        if self._core is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            return bool(self._core.status() != psutil.STATUS_ZOMBIE)
        return False

    def stop(self) -> None:
        """Wait until the processes have ended, kill those that do not, wait until all are gone; remove their folder."""
        import psutil

        _, stubborn = psutil.wait_procs(self._children, timeout=_PATIENCE)
        for child in stubborn:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(stubborn, timeout=_PATIENCE)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def _children() -> list[psutil.Process]:
    import psutil

    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def _command(child: psutil.Process) -> str:
    import psutil

    with contextlib.suppress(psutil.Error):
        return " ".join(child.cmdline())
    return ""
