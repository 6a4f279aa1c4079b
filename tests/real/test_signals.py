from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from entr_lab.real.signals import termination_as_interrupt


def test_a_termination_is_an_interrupt_inside_and_not_outside() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_coroutines_clean_up_when_they_are_terminated() -> None:
    done: list[str] = []

    async def run() -> None:
        try:
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.01)
            done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt), termination_as_interrupt():
        asyncio.run(run())
    assert done == ["cleaned up"]


def test_another_thread_leaves_signals_alone() -> None:
    handlers: list[object] = []

    def enter() -> None:
        with termination_as_interrupt():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)]
