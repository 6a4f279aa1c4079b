"""SIGTERM ends a run as Ctrl-C does: processes are stopped in order, and what is left is said. Ours."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["termination_as_interrupt"]


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Take SIGTERM for SIGINT inside the block.

    Enter it after Ray's start: Ray takes SIGTERM itself, prints its stack and leaves its processes behind. In any
    other thread than the main one nothing changes, since Python does not let it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
