"""The process that vLLM starts for the engine's core: found by its parent, and stopped for certain. Ours."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

__all__ = ["EngineProcess"]

_PATIENCE = 10.0
"""Seconds that a process gets to end by itself before it is killed."""


class EngineProcess:
    """Remembers which children this process had before the engine, so as to find the engine's own."""

    def __init__(self) -> None:
        self._before = {child.pid for child in _children()}
        self._children: list[psutil.Process] = []

    def find(self) -> None:
        """Take all children that are new as the engine's."""
        self._children = [child for child in _children() if child.pid not in self._before]

    @property
    def pid(self) -> int | None:
        """Of the core: the first child; None if there is none."""
        core = self._core
        return None if core is None else core.pid

    @property
    def _core(self) -> psutil.Process | None:
        named = [child for child in self._children if _looks_like_core(child)]
        return (named or self._children or [None])[0]

    def alive(self) -> bool:
        """Whether the core still runs; a zombie does not."""
        import psutil

        core = self._core
        if core is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            return bool(core.status() != psutil.STATUS_ZOMBIE)
        return False

    def stop(self) -> None:
        """End all of the engine's processes and wait until they are gone."""
        import psutil

        _, stubborn = psutil.wait_procs(self._children, timeout=_PATIENCE)
        for child in stubborn:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(stubborn, timeout=_PATIENCE)


def _children() -> list[psutil.Process]:
    import psutil

    found: list[psutil.Process] = psutil.Process().children(recursive=True)
    return found


def _looks_like_core(child: psutil.Process) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return "EngineCore" in " ".join(child.cmdline())
    return False
