"""Worker processes for cohorts, and the one early call that hides their start-up. Imports no torch.

Workers come from a fork server: a bare process that imports the heavy modules once, while the main process does the
same, and has used none of them, so that nothing of torch's state is inherited and a worker starts in milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any

from entr_lab.errors import EngineError

__all__ = ["Control", "Progress", "run_jobs", "start_server"]

Progress = Callable[[int, int], None]
"""Called with (run-updates done, run-updates in all)."""

_POLL_SECONDS = 0.2


def start_server() -> ForkServerContext:
    """Start the fork server if it does not run; returns at once, the imports go on in the background.

    A command calls this before its own heavy imports, so that both happen at the same time.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["entr_lab.sim.cohort"])
    forkserver.ensure_running()
    return context


class Control:
    """What a job shares with the main process: it reports progress, and asks whether to stop."""

    def __init__(self, done: Synchronized[int], stop: Event) -> None:
        self._done = done
        self._stop = stop

    def report(self, count: int) -> None:
        """Add `count` to what is done."""
        with self._done.get_lock():
            self._done.value += count

    def stopped(self) -> bool:
        """Whether the job should return what it has."""
        return self._stop.is_set()


_control: Control


def _initialise(main: int, done: Synchronized[int], stop: Event) -> None:
    # Ctrl-C reaches the whole process group; only the main process may act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(main,), daemon=True).start()
    global _control
    _control = Control(done, stop)


def _leave_with(main: int) -> None:
    """End this process when the main process is gone, however it died; the fork server outlives it with its workers."""
    while True:
        try:
            os.kill(main, 0)
        except OSError:
            os._exit(1)  # the pool's own loop would wait for work for ever
        time.sleep(_POLL_SECONDS)


def _call(job: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return job(_control, *arguments)


def run_jobs(
    job: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    *,
    workers: int,
    total: int,
    progress: Progress | None = None,
) -> tuple[list[Any], bool]:
    """Run `job(control, *arguments[i])` for every i in worker processes.

    Args:
        job: a module-level function; it should return early once `control.stopped()`.
        arguments: one tuple per job, pickled to the worker.
        workers: processes.
        total: what the jobs' reports will add up to.
        progress: called several times a second, and at the end.

    Returns:
        The results in order, and whether all jobs ran to their end. After Ctrl-C jobs under way return what they
        have, and jobs that had not begun are missing.

    Raises:
        EngineError: a worker died. Whatever a job raises is raised here too, after the other jobs have stopped.
    """
    context = start_server()
    done, stop = context.Value("q", 0), context.Event()
    interrupted = False
    with ProcessPoolExecutor(workers, context, _initialise, (os.getpid(), done, stop)) as pool:
        futures = [pool.submit(_call, job, each) for each in arguments]
        pending: set[Future[Any]] = set(futures)
        while pending:
            try:
                finished, pending = wait(pending, _POLL_SECONDS, FIRST_COMPLETED)
                if progress is not None:
                    progress(done.value, total)
                failed = any(future.exception() for future in finished if not future.cancelled())
            except KeyboardInterrupt:
                interrupted, failed = True, False
            if interrupted or failed:
                stop.set()
                for future in pending:
                    future.cancel()
    try:
        return [future.result() for future in futures if not future.cancelled()], not interrupted
    except BrokenProcessPool:
        raise EngineError(
            "a worker process died, most likely for lack of memory; use fewer workers or fewer seeds at a time."
        ) from None
