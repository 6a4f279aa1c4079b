"""Worker processes: order, progress, interruption, errors and death."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from entr_lab.errors import DataError, EngineError
from entr_lab.sim.workers import Control, run_jobs


def count_to(control: Control, number: int) -> tuple[int, int, int]:
    for _ in range(number):
        control.report(1)
    return number, number**2, os.getpid()


def until_stopped(control: Control, name: str) -> str:
    control.report(1)
    deadline = time.monotonic() + 60
    while not control.stopped():
        assert time.monotonic() < deadline, "the stop never came"
        time.sleep(0.01)
    return f"{name} stopped"


def fail(control: Control, number: int) -> int:
    if number == 1:
        raise DataError("number one cannot be trusted")
    return int(until_stopped(control, str(number)).split()[0])


def die(control: Control) -> None:
    os._exit(9)


def test_results_come_in_order_from_other_processes_with_all_progress() -> None:
    seen: list[tuple[int, int]] = []
    results, complete = run_jobs(
        count_to, [(5,), (3,), (0,)], workers=2, total=8, progress=lambda done, total: seen.append((done, total))
    )
    assert complete
    assert [result[:2] for result in results] == [(5, 25), (3, 9), (0, 0)]
    assert os.getpid() not in {result[2] for result in results}
    assert seen[-1] == (8, 8)
    assert sorted(seen) == seen


def test_an_interrupt_returns_what_has_begun_and_drops_what_has_not() -> None:
    def interrupt(done: int, total: int) -> None:
        if done == 2 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    interrupted: list[bool] = []
    names = [(name,) for name in "abcdefgh"]
    results, complete = run_jobs(until_stopped, names, workers=2, total=8, progress=interrupt)
    assert not complete
    assert results[:2] == ["a stopped", "b stopped"]
    assert len(results) < 8, "jobs that had not begun are missing"


def test_an_error_of_one_job_stops_the_others_and_is_raised() -> None:
    with pytest.raises(DataError, match="number one"):
        run_jobs(fail, [(0,), (1,)], workers=2, total=2)


def test_a_dead_worker_is_an_error_not_a_hang() -> None:
    with pytest.raises(EngineError, match="a worker process died"):
        run_jobs(die, [()], workers=1, total=1)


def test_the_module_is_light() -> None:
    """The command line starts the server before it imports torch, so this module must not import it."""
    code = "import sys, entr_lab.sim.workers; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def until_abandoned(control: Control, folder: str) -> None:
    with open(f"{folder}/{os.getpid()}", "w", encoding="utf-8"):
        pass
    deadline = time.monotonic() + 60
    while not control.stopped() and time.monotonic() < deadline:
        time.sleep(0.01)


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks processes up in /proc")
def test_workers_do_not_outlive_a_main_process_that_was_killed(tmp_path):
    code = (
        "from entr_lab.sim.workers import run_jobs\n"
        "from tests.sim.test_workers import until_abandoned\n"
        f"run_jobs(until_abandoned, [({str(tmp_path)!r},)] * 2, workers=2, total=2)\n"
    )
    main = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() < deadline, "the workers never started"
        assert main.poll() is None, "the main process ended by itself"
        time.sleep(0.05)
    workers = [int(path.name) for path in tmp_path.iterdir()]

    main.kill()
    main.wait()

    deadline = time.monotonic() + 30
    while any(running(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers go on without their main process"
        time.sleep(0.05)
