"""SIGTERM ends a run as Ctrl-C does: processes are stopped in order, and what is left is said. Ours."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_until_terminated"]

T = TypeVar("T")


def run_until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does; at SIGTERM it is cancelled and may clean up.

    Call it after Ray's start: Ray takes SIGTERM itself, prints its stack and leaves its processes behind. In any other
    thread than the main one nothing changes, since Python does not let it.

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

    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        raise
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)
