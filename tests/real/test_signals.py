from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from entr_lab.real.signals import run_until_terminated, termination_as_interrupt


@pytest.fixture(autouse=True)
def own_termination() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background job"])
def interrupts(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


async def terminated(times: int, done: list[str]) -> None:
    loop = asyncio.get_running_loop()
    try:
        loop.call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.sleep(30)
    finally:
        for _ in range(times - 1):
            loop.call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
        done.append("cleaned up")


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_terminated_cleans_up_however_often_it_is_told(times: int) -> None:
    before, done = signal.getsignal(signal.SIGTERM), list[str]()

    def run() -> None:
        try:
            run_until_terminated(terminated(times, done))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # while the cluster is shut down
            done.append("and after")

    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        run()
    assert done == ["cleaned up", "and after"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_termination_before_the_loop_is_an_interrupt() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_exit_of_rays_handler_is_an_interrupt_and_others_are_not() -> None:
    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        sys.exit(signal.SIGTERM)
    with pytest.raises(SystemExit, match="3"), termination_as_interrupt():
        sys.exit(3)


def test_ctrl_c_does_the_same() -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        run_until_terminated(work())
    assert done == ["cleaned up"]


def test_answers_and_errors_come_through() -> None:
    async def answer() -> int:
        return 3

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    async def fails() -> None:
        raise KeyError("k")

    assert run_until_terminated(answer()) == 3
    with pytest.raises(asyncio.CancelledError):
        run_until_terminated(cancels_itself())
    with pytest.raises(KeyError):
        run_until_terminated(fails())


def test_another_thread_leaves_signals_alone() -> None:
    found: list[object] = []

    async def look() -> object:
        return signal.getsignal(signal.SIGTERM)

    thread = threading.Thread(target=lambda: found.append(run_until_terminated(look())))
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
