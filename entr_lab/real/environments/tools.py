"""Running a tool for a model: latency, time limit, and answers that fit a context, whatever the tool does."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np

from entr_lab.errors import check_range

__all__ = ["ToolError", "ToolRunner"]


class ToolError(Exception):
    """A tool's way of telling the model what was wrong with its call; the message is the answer."""


class ToolRunner:
    """Runs tools; never raises for what a tool does.

    Args:
        latency: mean seconds added to every call.
        sigma: spread of a log-normal latency of that mean; 0 is constant.
        timeout: seconds after which a call has failed, latency included.
        max_chars: longest answer; the rest is cut.
        seed: of the latencies.
    """

    def __init__(
        self,
        latency: float = 0.0,
        sigma: float = 0.0,
        timeout: float = 30.0,
        max_chars: int = 4096,
        seed: int = 0,
    ) -> None:
        check_range("latency", latency, low=0.0, high=float("inf"), high_open=True)
        check_range("sigma", sigma, low=0.0, high=3.0)
        check_range("timeout", timeout, low=0.0, low_open=True)
        check_range("max_chars", max_chars, low=16)
        self.latency, self.sigma, self.timeout, self.max_chars = latency, sigma, timeout, max_chars
        self.calls = 0
        self.failures = 0
        self._random = np.random.default_rng(seed)

    async def call(self, tool: Callable[[str], str | Awaitable[str]], argument: str) -> tuple[str, bool]:
        """Return (answer, whether the tool worked); a tool that raises or hangs answers `error: …`.

        A plain function runs in a daemon thread, so that a slow one holds nobody else up, and one that never returns
        does not keep the process alive.
        """
        self.calls += 1
        try:
            # Python 3.11's wait_for forgets a cancellation that comes together with the answer.
            async with asyncio.timeout(self.timeout):
                answer = await self._run(tool, argument)
        except TimeoutError:
            answer, worked = f"error: no answer within {self.timeout:g} s", False
        except ToolError as error:
            answer, worked = f"error: {error}", False
        except Exception as error:
            answer, worked = f"error: {type(error).__name__}: {error}", False
        else:
            worked = True
        self.failures += not worked
        if len(answer) > self.max_chars:
            answer = answer[: self.max_chars - 3] + "..."
        return answer, worked

    async def _run(self, tool: Callable[[str], Any], argument: str) -> str:
        if delay := self._delay():
            await asyncio.sleep(delay)
        if inspect.iscoroutinefunction(tool):
            return str(await tool(argument))
        return str(await _in_thread(tool, argument))

    def _delay(self) -> float:
        if not self.sigma:
            return self.latency
        # The mean of exp(σ z − σ²/2) is 1.
        return self.latency * float(np.exp(self.sigma * self._random.standard_normal() - self.sigma**2 / 2))


async def _in_thread(tool: Callable[[str], Any], argument: str) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = tool(argument)
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True, name="entr-lab tool").start()
    return await future
