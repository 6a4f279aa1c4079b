"""Tools that are slow, raise, hang or say too much."""

import asyncio
import threading
import time

import numpy as np
import pytest

from entr_lab.errors import RangeError
from entr_lab.real.environments.tools import ToolError, ToolRunner


def call(tool, runner=None, argument="x"):
    """One call."""
    return asyncio.run((runner or ToolRunner()).call(tool, argument))


def test_plain_and_coroutine_tools():
    """Both kinds get the argument."""

    async def later(argument):
        return argument * 2

    assert call(lambda a: a + "!") == ("x!", True)
    assert call(later) == ("xx", True)


def test_a_tool_that_raises_tells_the_model():
    """The run goes on, whatever it raised."""

    def refuse(_):
        raise ToolError("write a number")

    def crash(_):
        raise KeyError("k")

    runner = ToolRunner()
    assert call(refuse, runner) == ("error: write a number", False)
    assert call(crash, runner) == ("error: KeyError: 'k'", False)
    assert (runner.calls, runner.failures) == (2, 2)


def test_a_tool_that_hangs_is_given_up():
    """A coroutine is cancelled, a thread is left behind as a daemon."""
    release = threading.Event()

    async def sleeps(_):
        await asyncio.sleep(60)

    def blocks(_):
        release.wait(60)

    started = time.monotonic()
    for tool in (sleeps, blocks):
        assert call(tool, ToolRunner(timeout=0.05)) == ("error: no answer within 0.05 s", False)
    assert time.monotonic() - started < 30
    assert all(t.daemon for t in threading.enumerate() if t.name == "entr-lab tool")
    release.set()


def test_a_megabyte_is_cut():
    """A context has an end."""
    answer, worked = call(lambda _: "y" * 1_000_000, ToolRunner(max_chars=100))

    assert worked
    assert answer == "y" * 97 + "..."


def test_latency_is_real_and_has_the_stated_mean():
    """Constant latency delays; the log-normal keeps the mean, and is a function of the seed."""
    started = time.monotonic()
    call(str, ToolRunner(latency=0.05))
    assert time.monotonic() - started >= 0.05

    delays = [ToolRunner(latency=2.0, sigma=0.5, seed=s)._delay() for s in range(4000)]
    assert np.mean(delays) == pytest.approx(2.0, rel=0.05)
    assert np.std(np.log(delays)) == pytest.approx(0.5, rel=0.05)
    assert ToolRunner(latency=1, sigma=1, seed=3)._delay() == ToolRunner(latency=1, sigma=1, seed=3)._delay()


def test_calls_overlap(monkeypatch):
    """Twenty slow tools wait side by side."""
    rest, waiting, most = asyncio.sleep, 0, 0

    async def sleep(seconds):
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        for _ in range(50):
            await rest(0)
        waiting -= 1

    async def many():
        runner = ToolRunner(latency=0.2)
        return await asyncio.gather(*(runner.call(str, "1") for _ in range(20)))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(many())
    assert most == 20


def test_bounds():
    """Settings that make no sense are refused."""
    for wrong in ({"latency": -1}, {"timeout": 0}, {"max_chars": 3}, {"sigma": 9}):
        with pytest.raises(RangeError):
            ToolRunner(**wrong)
