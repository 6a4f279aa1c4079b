"""A CPU to itself for an engine's core.

The core is one busy thread between processes that wake some hundred times a second. Where CPUs are few the kernel moves
it from one to another all the time, and its cache stays behind. A claim is a name that one process of the machine can
hold and that falls free when the process ends, so that the engines of two runs do not share a CPU. Ours.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from entr_lab.real.processes import threads_of

__all__ = ["EngineCpu", "off_engine_cpus"]

_NAME: Final = "\0entr-lab-engine-cpu-"  # the zero byte: a name without a file
_MANY: Final = 8
"""CPUs above which the kernel has room, and containers that do not know of each other may share them."""


@dataclass(frozen=True, slots=True)
class EngineCpu:
    """A CPU that nobody else has claimed; it falls free with `release` or at the end of the process.

    Args:
        number: of the CPU.
        held: what only one process can hold.
    """

    number: int
    held: socket.socket

    @classmethod
    def claim(cls) -> Self | None:
        """Claim a CPU of the lower half of those that this process may use, so that as many are left for the rest.

        Returns:
            None where that half is claimed, there is one CPU or more than eight, or the system is not Linux.
        """
        usable = sorted(_usable())
        for number in usable[: len(usable) // 2] if len(usable) <= _MANY else ():
            name = socket.socket(socket.AF_UNIX)
            try:
                name.bind(f"{_NAME}{number}")
            except OSError:
                name.close()
                continue
            return cls(number, name)
        return None

    def seat(self, engine: int) -> None:
        """Put all threads of the process `engine` onto the CPU, and those of this process onto unclaimed ones."""
        _confine(engine, {self.number})
        _confine(os.getpid(), _usable() - _claimed())

    def release(self) -> None:
        """Let others claim the CPU."""
        self.held.close()


@contextlib.contextmanager
def off_engine_cpus() -> Iterator[None]:
    """Keep this process off all CPUs that are claimed now, by this run or others, until the end of the block."""
    usable = _usable()
    _confine(os.getpid(), usable - _claimed())
    try:
        yield
    finally:
        _confine(os.getpid(), usable)


def _usable() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else frozenset()


def _claimed() -> set[int]:
    try:
        names = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return {int(number) for number in re.findall(rf" @{_NAME[1:]}(\d+)$", names, re.MULTILINE)}


def _confine(process: int, cpus: Set[int]) -> None:
    if not cpus:
        return  # nowhere to go
    for thread in threads_of(process):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cpus)
