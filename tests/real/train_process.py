"""`entr-lab train` as a process that a test watches and kills parts of."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from entr_lab.real.checkpoint import latest_checkpoint, load_checkpoint
from entr_lab.real.folders import SHARED_MEMORY

GENERATOR, CORE, TRAINER = "ray::GeneratorActor", "VLLM::EngineCore", "ray::TrainerActor"
_PATIENCE = 400.0
"""Seconds for a start on a machine that others use too."""


class TrainProcess:
    """One `entr-lab train`, and every process that it is known to have started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._streams = Path(tempfile.mkdtemp(prefix="train-process-"))
        command = [sys.executable, "-c", "from entr_lab.cli.main import main; main()", "train", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self._streams / "out").open("w") as out, (self._streams / "err").open("w") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)
        self.started: dict[int, psutil.Process] = {}

    def look(self) -> list[psutil.Process]:
        """Return the processes under the command, and remember them."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            found = []
        self.started.update((child.pid, child) for child in found)
        return found

    def pid(self, title: str) -> int | None:
        """Return the process whose title begins so, or None."""
        return next((child.pid for child in self.look() if _title(child).startswith(title)), None)

    def kill(self, title: str) -> int:
        """Kill a process by SIGKILL and return what its id was."""
        pid = self.pid(title)
        assert pid is not None, f"there is no {title}"
        os.kill(pid, signal.SIGKILL)
        return pid

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; the command must not end before it."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            self.look()
            assert self.process.poll() is None, f"ended before {what}: {self.errors}"
            assert time.monotonic() < deadline, f"no {what} after {_PATIENCE:g} s: {self.errors}"
            time.sleep(0.1)

    def end(self) -> int:
        """Wait for the command to end by itself and return its exit code."""
        deadline = time.monotonic() + _PATIENCE
        while self.process.poll() is None:
            self.look()
            assert time.monotonic() < deadline, f"still running after {_PATIENCE:g} s: {self.errors}"
            time.sleep(0.1)
        return int(self.process.returncode)

    def survivors(self, patience: float) -> list[str]:
        """Return the titles of started processes that still run after `patience` seconds."""
        _, alive = psutil.wait_procs([child for child in self.started.values() if _runs(child)], timeout=patience)
        return [_title(child) for child in alive if _runs(child)]

    def files_left(self) -> list[Path]:
        """Return the folders in shared memory and in the temporary folder that processes of this command made."""
        ours = {self.process.pid, *self.started}
        found = [*SHARED_MEMORY.glob("entr-lab-*"), *Path(tempfile.gettempdir()).glob("entr-lab-*")]
        makers = {path: re.match(r"entr-lab-\d+-(\d+)-", path.name) for path in found}
        return [path for path, maker in makers.items() if maker and int(maker[1]) in ours]

    @property
    def output(self) -> str:
        """What the command printed on its standard output."""
        return (self._streams / "out").read_text()

    @property
    def errors(self) -> str:
        """What it printed on its standard error."""
        return (self._streams / "err").read_text()

    @property
    def sentence(self) -> str:
        """The last line of its errors; empty if there is none."""
        return next(reversed(self.errors.strip().splitlines()), "")

    @property
    def batches(self) -> int:
        """Batches that the run's metrics hold."""
        path = self.folder / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    @property
    def saved(self) -> int:
        """Batches trained at the newest checkpoint; 0 without one."""
        folders = sorted((self.folder / "checkpoints").glob("step-*/manifest.json"))
        return int(folders[-1].parent.name.removeprefix("step-")) if folders else 0

    def close(self) -> None:
        """Kill whatever of it still runs."""
        self.look()
        self.process.kill()
        self.process.wait()
        for child in self.started.values():
            if _runs(child):
                child.kill()
        shutil.rmtree(self._streams)


def complete_groups(folder: Path) -> set[int]:
    """Return the groups that were complete and not yet trained at the newest checkpoint."""
    saved = load_checkpoint(latest_checkpoint(folder / "checkpoints"))
    return {group[0] for group in saved.state["pipeline"]["ready"]}


def _runs(child: psutil.Process) -> bool:
    try:
        return bool(child.is_running() and child.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _title(child: psutil.Process) -> str:
    try:
        return " ".join(child.cmdline()).strip()
    except psutil.Error:
        return ""
