"""Coroutines as tests, and the smallest completion."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import numpy as np

from entr_lab.real.records import Completion


def scenario(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a coroutine function as a test; one that hangs fails."""

    @wraps(test)
    def run(*arguments: object, **named: object) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 60))

    return run


def one_token(token: int) -> Completion:
    columns = (np.zeros(1, np.float32) for _ in range(3))
    return Completion(np.array([token], np.int32), *columns, np.zeros(1, np.int64), "stop")
