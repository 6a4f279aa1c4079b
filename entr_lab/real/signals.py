"""SIGTERM ends a run as Ctrl-C does: processes are stopped in order, and what is left is said.

Ray takes SIGTERM when it starts, would print its stack and leave its processes behind; so it is taken back after. Ours.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

__all__ = ["run_until_terminated", "termination_as_interrupt"]

T = TypeVar("T")


def run_until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does; at SIGTERM it is cancelled and may clean up.

    Once it has returned, SIGTERM is ignored, so that what comes after may clean up too: use it inside
    `termination_as_interrupt`, which gives the signal back. In any other thread than the main one nothing changes,
    since Python does not let it.

    Raises:
        KeyboardInterrupt: SIGTERM or SIGINT came.
    """
    terminated = False

    async def run() -> T:
        task, loop = asyncio.create_task(work), asyncio.get_running_loop()

        def end() -> None:
            nonlocal terminated
            if not terminated:  # a second one must not cut the cleaning up short
                terminated = True
                task.cancel()

        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGTERM, end)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C inside the block, until something in it takes the signal itself; give it back after."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # of Ray's handler, which it sets before it connects
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
