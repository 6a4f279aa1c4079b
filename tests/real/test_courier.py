from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.real import courier
from entr_lab.real.courier import Answer, Courier, Desk, Order
from entr_lab.real.records import Completion, SamplingSpec

SPEC = SamplingSpec()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "GATHER", 0.001)
    monkeypatch.setattr(courier, "LINGER", 0.002)


def completion(token: int) -> Completion:
    columns = (np.zeros(1, np.float32) for _ in range(3))
    return Completion(np.array([token], np.int32), *columns, np.zeros(1, np.int64), "stop")


class Line:
    """A desk whose generator answers prompt `[k]` after `k` milliseconds with token `k`, and a record of the rounds."""

    def __init__(self) -> None:
        self.desk = Desk(self.generate)
        self.courier = Courier(self.exchange)
        self.rounds: list[tuple[int, bool]] = []
        self.names: list[str | None] = []
        self.broken: Exception | None = None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        self.names.append(request_id)
        await asyncio.sleep(prompt_ids[0] / 1000)
        if prompt_ids[0] == 13:
            raise EngineError("thirteen")
        if prompt_ids[0] == 14:
            raise KeyError("fourteen")
        return [completion(prompt_ids[0])] * n

    async def exchange(self, orders: Sequence[Order], patient: bool) -> list[Answer]:
        self.rounds.append((len(orders), patient))
        if self.broken:
            raise self.broken
        return await self.desk.exchange(orders, patient)

    async def ask(self, number: int, n: int = 1, name: str | None = None) -> list[int]:
        found = await self.courier.generate([number], SPEC, n, name)
        return [int(one.token_ids[0]) for one in found]


def test_calls_of_one_moment_travel_together_and_each_gets_its_own_answer() -> None:
    async def scenario() -> Line:
        line = Line()
        found = await asyncio.gather(*(line.ask(number) for number in (5, 1, 3, 2)), line.ask(4, n=3))
        assert found == [[5], [1], [3], [2], [4, 4, 4]]
        return line

    line = asyncio.run(scenario())
    assert line.rounds[0] == (5, True)
    assert len(line.rounds) < 5


def test_a_call_does_not_wait_for_the_round_that_waits() -> None:
    async def scenario() -> Line:
        line = Line()
        slow = asyncio.create_task(line.ask(500))
        await asyncio.sleep(0.02)
        assert await asyncio.wait_for(line.ask(1), 0.4) == [1]
        assert not slow.done()
        await asyncio.sleep(0.02)
        slow.cancel()
        return line

    line = asyncio.run(scenario())
    assert line.rounds[:2] == [(1, True), (1, False)]
    assert line.rounds[2:] == [(0, True)]


def test_at_most_one_round_waits_at_the_desk() -> None:
    async def scenario() -> int:
        line, inside, most = Line(), 0, 0
        exchange = line.desk.exchange

        async def counted(orders: Sequence[Order], patient: bool) -> list[Answer]:
            nonlocal inside, most
            inside += patient
            most = max(most, inside)
            try:
                return await exchange(orders, patient)
            finally:
                inside -= patient

        line.courier = Courier(counted)
        await asyncio.gather(*(line.ask(number) for number in range(20, 60)))
        for number in range(5):
            await line.ask(number)
        return most

    assert asyncio.run(scenario()) == 1


@pytest.mark.parametrize(("number", "message"), [(13, "thirteen"), (14, "KeyError")])
def test_a_call_that_fails_fails_alone(number: int, message: str) -> None:
    async def scenario() -> None:
        line = Line()
        found = await asyncio.gather(line.ask(number), line.ask(20), return_exceptions=True)
        assert isinstance(found[0], EngineError)
        assert message in str(found[0])
        assert found[1] == [20]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [EngineError("gone or restarting"), RuntimeError("gone or restarting")])
def test_a_round_that_breaks_off_fails_all_that_was_under_way_and_nothing_later(error: Exception) -> None:
    async def scenario() -> None:
        line = Line()
        line.broken = error
        found = await asyncio.gather(line.ask(1), line.ask(2), return_exceptions=True)
        assert all(isinstance(one, EngineError) and "gone or restarting" in str(one) for one in found)
        line.broken = None
        assert await line.ask(3) == [3]

    asyncio.run(scenario())


def test_an_impatient_round_that_breaks_off_fails_the_calls_of_the_other_rounds_too() -> None:
    async def scenario() -> None:
        line = Line()
        slow = asyncio.create_task(line.ask(300))
        await asyncio.sleep(0.01)
        line.broken = EngineError("gone")
        with pytest.raises(EngineError, match="gone"):
            await line.ask(1)
        with pytest.raises(EngineError, match="gone"):
            await slow

    asyncio.run(scenario())


def test_who_goes_away_before_the_round_is_not_asked_for_and_later_answers_are_dropped() -> None:
    async def scenario() -> Line:
        line = Line()
        unsent = asyncio.create_task(line.ask(1, name="unsent"))
        await asyncio.sleep(0)
        unsent.cancel()
        sent = asyncio.create_task(line.ask(5, name="sent"))
        await asyncio.sleep(0.004)
        sent.cancel()
        assert await line.ask(8, name="last") == [8]
        return line

    assert asyncio.run(scenario()).names == ["sent", "last"]


def test_a_closed_desk_lets_the_waiting_round_go() -> None:
    async def scenario() -> None:
        desk = Desk(Line().generate)
        order = Order(0, courier.SampleCall((10_000,), SPEC), 1)
        waiting = asyncio.create_task(desk.exchange([order], True))
        await asyncio.sleep(0.005)
        desk.close()
        assert await asyncio.wait_for(waiting, 1) == []

    asyncio.run(scenario())


def test_a_round_carries_a_limited_number_of_answers_and_the_rest_is_not_lost() -> None:
    async def scenario() -> list[int]:
        desk, sizes, found = Desk(Line().generate), [], set()
        orders = [Order(number, courier.SampleCall((number % 2,), SPEC), 1) for number in range(courier.MOST * 2 + 3)]
        assert await desk.exchange(orders, False) == []
        while len(found) < len(orders):
            answers = await asyncio.wait_for(desk.exchange([], True), 1)
            sizes.append(len(answers))
            found |= {number for number, _ in answers}
        return sizes

    sizes = asyncio.run(scenario())
    assert max(sizes) == courier.MOST
    assert sum(sizes) == courier.MOST * 2 + 3


class MortalLine(Line):
    """A line that loses rounds and orders whenever its process dies, and delays everything at random."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.dead = asyncio.Event()

    def restart(self) -> None:
        self.desk, self.dead = Desk(self.generate), asyncio.Event()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        await asyncio.sleep(self.random.choice((0, 0.001, 0.01)) * self.random.random())
        if self.random.random() < 0.02:
            raise EngineError("one of many")
        return [completion(prompt_ids[0])]

    async def exchange(self, orders: Sequence[Order], patient: bool) -> list[Answer]:
        desk, dead = self.desk, self.dead
        await asyncio.sleep(0.003 * self.random.random())
        answers = asyncio.ensure_future(desk.exchange(orders, patient))
        death = asyncio.ensure_future(dead.wait())
        await asyncio.wait([answers, death], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.003 * self.random.random())
        if dead.is_set():
            answers.cancel()
            raise EngineError("gone or restarting")
        death.cancel()
        return answers.result()


@pytest.mark.parametrize("seed", range(3))
def test_calls_end_with_their_own_answer_or_an_error_while_rounds_break_off_and_callers_leave(seed: int) -> None:
    async def scenario() -> tuple[int, int]:
        line = MortalLine(seed)

        async def caller(number: int) -> str:
            await asyncio.sleep(0.4 * line.random.random())
            call = asyncio.ensure_future(line.ask(number))
            if number % 10 == 0:
                await asyncio.sleep(0.01 * line.random.random())
                call.cancel()
            done, _ = await asyncio.wait([call], timeout=10)
            assert done, f"call {number} hangs"
            if call.cancelled():
                return "left"
            if call.exception() is not None:
                assert isinstance(call.exception(), EngineError)
                return "failed"
            assert call.result() == [number]
            return "answered"

        async def reaper() -> None:
            for _ in range(3):
                await asyncio.sleep(0.1)
                line.dead.set()
                await asyncio.sleep(0.02)
                line.restart()

        ends, _ = await asyncio.gather(asyncio.gather(*(caller(number) for number in range(500))), reaper())
        return ends.count("answered"), ends.count("failed")

    answered, failed = asyncio.run(scenario())
    assert answered > 200
    assert failed > 10
