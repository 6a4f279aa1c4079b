from __future__ import annotations

import asyncio

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.real.trust import VersionTrust


def versions(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


async def started(task: asyncio.Task) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


def test_tokens_wait_for_the_proof_of_every_version_in_them() -> None:
    async def scenario() -> None:
        trust = VersionTrust()
        trust.open(3)
        old = asyncio.create_task(trust.wait(versions(1, 2)))
        new = asyncio.create_task(trust.wait(versions(2, 2, 3)))
        assert await started(old)
        assert not await started(new)
        trust.accept(3)
        assert await started(new)
        await new

    asyncio.run(scenario())


def test_a_refused_version_fails_those_who_wait_and_those_who_come_later() -> None:
    async def scenario() -> None:
        trust = VersionTrust()
        trust.open(3)
        waiting = asyncio.create_task(trust.wait(versions(2, 3)))
        await started(waiting)
        trust.refuse(3, "the canary died")
        with pytest.raises(EngineError, match="tokens of weights 3 cannot be trusted: the canary died"):
            await waiting
        trust.open(4)
        trust.accept(4)
        await trust.wait(versions(2, 4))
        with pytest.raises(EngineError, match="weights 3"):
            await trust.wait(versions(3, 4))

    asyncio.run(scenario())


def test_a_version_that_is_pushed_again_gets_a_new_chance() -> None:
    async def scenario() -> None:
        trust = VersionTrust()
        trust.open(3)
        trust.refuse(3, "truncated")
        trust.open(3)
        trust.accept(3)
        await trust.wait(versions(3))

    asyncio.run(scenario())


def test_an_empty_completion_has_nothing_to_prove() -> None:
    asyncio.run(VersionTrust().wait(versions()))
