from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("psutil")

from entr_lab.real.processes import StartedProcesses

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]


def test_only_processes_started_since_are_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entr_lab.real.processes._PATIENCE", 0.2)
    older = subprocess.Popen(SLEEP)
    process = StartedProcesses()
    engine = subprocess.Popen(STUBBORN)
    try:
        assert process.pid is None
        assert not process.alive()
        process.find()
        assert process.pid == engine.pid
        assert process.alive()
        process.stop()
        assert not process.alive()
        assert older.poll() is None
    finally:
        older.kill()
        engine.kill()
        older.wait(5)


def test_their_folder_goes_with_them(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    (folder / "one").touch()
    StartedProcesses(folder).stop()
    assert not folder.exists()


def test_a_zombie_is_dead() -> None:
    process = StartedProcesses()
    engine = subprocess.Popen(SLEEP)
    process.find()
    engine.kill()
    import psutil

    while psutil.Process(engine.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not process.alive()
    engine.wait(5)


def test_the_core_is_found_by_its_name_among_children() -> None:
    process = StartedProcesses()
    helper = subprocess.Popen(SLEEP)
    core = subprocess.Popen([*SLEEP, "VLLM::EngineCore"])
    try:
        process.find()
        assert process.pid == core.pid
    finally:
        for child in (helper, core):
            child.kill()
            child.wait(5)


def test_pythons_semaphore_tracker_is_not_the_engines() -> None:
    process = StartedProcesses()
    tracker = subprocess.Popen([*SLEEP, "from multiprocessing.resource_tracker import main"])
    try:
        process.find()
        assert process.pid is None
        process.stop()
        assert tracker.poll() is None
    finally:
        tracker.kill()
        tracker.wait(5)


ASIDE = """
import os, threading, time
from entr_lab.real.processes import step_aside
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
before = os.getpriority(os.PRIO_PROCESS, 0)
step_aside()
print(*(os.getpriority(os.PRIO_PROCESS, int(thread)) - before for thread in os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="niceness of threads is Linux's")
def test_every_thread_steps_aside() -> None:
    done = subprocess.run([sys.executable, "-c", ASIDE], capture_output=True, text=True, check=True)
    shifts = done.stdout.split()
    assert len(shifts) >= 2
    assert set(shifts) == {"5"}
