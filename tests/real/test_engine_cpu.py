from __future__ import annotations

import os
import subprocess
import sys
import uuid

import pytest

from entr_lab.real import engine_cpu
from entr_lab.real.engine_cpu import EngineCpu

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread cannot be bound to a CPU")


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Claims of a run that goes on beside the tests do not count."""
    name = f"\0test-{uuid.uuid4().hex}-"
    monkeypatch.setattr(engine_cpu, "_NAME", name)
    return name


def usable(monkeypatch: pytest.MonkeyPatch, *cpus: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(cpus))


def test_half_of_the_cpus_can_be_claimed_and_fall_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    usable(monkeypatch, 9, 4, 7, 5, 6)
    first, second = EngineCpu.claim(), EngineCpu.claim()
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (4, 5)
    assert EngineCpu.claim() is None
    first.release()
    third = EngineCpu.claim()
    assert third is not None
    assert third.number == 4
    for claim in (second, third):
        claim.release()


@pytest.mark.parametrize("cpus", [[3], list(range(9))], ids=["one", "many"])
def test_nothing_is_claimed_of_one_cpu_or_of_many(monkeypatch: pytest.MonkeyPatch, cpus: list[int]) -> None:
    usable(monkeypatch, *cpus)
    assert EngineCpu.claim() is None


def test_a_claim_ends_with_its_process(monkeypatch: pytest.MonkeyPatch, own_name: str) -> None:
    usable(monkeypatch, 0, 1)
    code = (
        "import os, socket; s = socket.socket(socket.AF_UNIX);"
        f"s.bind({own_name!r} + '0'); print('held', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert EngineCpu.claim() is None
        other.kill()
        other.wait(10)
    claim = EngineCpu.claim()
    assert claim is not None
    claim.release()


def test_a_process_keeps_off_claimed_cpus_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    confined: list[set[int]] = []
    monkeypatch.setattr(engine_cpu, "_confine", lambda process, cpus: confined.append(set(cpus)))
    usable(monkeypatch, 0, 1, 2, 3)
    claims = [EngineCpu.claim(), EngineCpu.claim()]
    with engine_cpu.off_engine_cpus():
        assert confined == [{2, 3}]
    assert confined == [{2, 3}, {0, 1, 2, 3}]
    for claim in claims:
        assert claim is not None
        claim.release()


def test_a_process_with_nowhere_to_go_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cpus: pytest.fail("moved"))
    engine_cpu._confine(os.getpid(), set())


SEAT = """
import os, subprocess, sys, threading, time, uuid
from entr_lab.real import engine_cpu
from entr_lab.real.engine_cpu import EngineCpu
engine_cpu._NAME = "\\0test-" + uuid.uuid4().hex
threaded = "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); print(1, flush=True)"
engine = subprocess.Popen([sys.executable, "-c", threaded], stdout=subprocess.PIPE)
engine.stdout.readline()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
before, claim = os.sched_getaffinity(0), EngineCpu.claim()
claim.seat(engine.pid)
for process, cpus in ((engine.pid, {claim.number}), (os.getpid(), before - {claim.number})):
    tasks = os.listdir(f"/proc/{process}/task")
    print(len(tasks) > 1, all(os.sched_getaffinity(int(task)) == cpus for task in tasks))
engine.kill()
claim.seat(engine.pid)  # a dead engine changes nothing
"""


@pytest.mark.skipif(not 2 <= (os.cpu_count() or 1) <= 8, reason="nothing is claimed here")
def test_every_thread_takes_its_seat() -> None:
    done = subprocess.run([sys.executable, "-c", SEAT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4
