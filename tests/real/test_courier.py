from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence

import pytest

from entr_lab.errors import EngineError
from entr_lab.real import courier, desk
from entr_lab.real.courier import Courier
from entr_lab.real.desk import Desk, Reply, Round
from entr_lab.real.records import Completion, SamplingSpec
from tests.real.coroutines import one_token, scenario

SPEC = SamplingSpec()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "GATHER", 0.001)
    monkeypatch.setattr(desk, "LINGER", 0.002)


class Line:
    """A desk whose generator answers prompt `[k]` after `k` milliseconds with token `k`, and a record of the rounds."""

    def __init__(self) -> None:
        self.desk = Desk(self.generate)
        self.courier = Courier(self.exchange)
        self.rounds: list[tuple[int, bool]] = []
        self.names: list[str | None] = []
        self.playing = 0
        self.under_way = 0
        self.broken: Exception | None = None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        self.names.append(request_id)
        self.playing += 1
        try:
            return [await self.play(prompt_ids[0])] * n
        finally:
            self.playing -= 1

    async def play(self, token: int) -> Completion:
        await asyncio.sleep(token / 1000)
        if token == 13:
            raise EngineError("thirteen")
        if token == 14:
            raise KeyError("fourteen")
        return one_token(token)

    async def exchange(self, message: Round) -> Reply:
        self.rounds.append((len(message.orders), message.patient))
        if self.broken:
            raise self.broken
        self.under_way += 1
        try:
            return await self.desk.exchange(message)
        finally:
            self.under_way -= 1

    async def ask(self, number: int, n: int = 1, name: str | None = None) -> list[int]:
        found = await self.courier.generate([number], SPEC, n, name)
        return [int(one.token_ids[0]) for one in found]


@scenario
async def test_calls_of_one_moment_travel_together_and_each_gets_its_own_answer() -> None:
    line = Line()
    found = await asyncio.gather(*(line.ask(number) for number in (5, 1, 3, 2)), line.ask(4, n=3))
    assert found == [[5], [1], [3], [2], [4, 4, 4]]
    assert line.rounds[0] == (5, True)
    assert len(line.rounds) < 5


@scenario
async def test_a_call_does_not_wait_for_the_round_that_waits() -> None:
    line = Line()
    slow = asyncio.create_task(line.ask(500))
    await asyncio.sleep(0.02)
    assert await asyncio.wait_for(line.ask(1), 0.4) == [1]
    assert not slow.done()
    await asyncio.sleep(0.02)
    slow.cancel()
    assert line.rounds[:2] == [(1, True), (1, False)]
    assert line.rounds[2:] == [(0, True)]


@scenario
async def test_at_most_one_round_waits_at_the_desk() -> None:
    line, inside, most = Line(), 0, 0

    async def counted(message: Round) -> Reply:
        nonlocal inside, most
        inside += message.patient
        most = max(most, inside)
        try:
            return await line.desk.exchange(message)
        finally:
            inside -= message.patient

    line.courier = Courier(counted)
    await asyncio.gather(*(line.ask(number) for number in range(20, 60)))
    for number in range(5):
        await line.ask(number)
    assert most == 1


@pytest.mark.parametrize(("number", "message"), [(13, "thirteen"), (14, "KeyError")])
@scenario
async def test_a_call_that_fails_fails_alone(number: int, message: str) -> None:
    line = Line()
    found = await asyncio.gather(line.ask(number), line.ask(20), return_exceptions=True)
    assert isinstance(found[0], EngineError)
    assert message in str(found[0])
    assert found[1] == [20]


@scenario
async def test_a_call_that_goes_away_takes_its_round_with_it() -> None:
    line = Line()
    lone = asyncio.create_task(line.ask(3000))
    await asyncio.sleep(0.03)
    assert line.under_way == 1
    lone.cancel()
    await asyncio.sleep(0.1)
    assert line.under_way == 0


@scenario
async def test_what_cannot_travel_fails_alone() -> None:
    line = Line()
    found = await asyncio.gather(line.ask("x"), line.ask(2), return_exceptions=True)  # type: ignore[arg-type]
    assert isinstance(found[0], ValueError)
    assert found[1] == [2]


@pytest.mark.parametrize("error", [EngineError("gone or restarting"), RuntimeError("gone or restarting")])
@scenario
async def test_a_round_that_breaks_off_fails_all_that_was_asked_and_nothing_later(error: Exception) -> None:
    line = Line()
    slow = asyncio.create_task(line.ask(300))
    await asyncio.sleep(0.01)
    line.broken = error
    found = await asyncio.gather(line.ask(1), line.ask(2), slow, return_exceptions=True)
    assert all(isinstance(one, EngineError) and "gone or restarting" in str(one) for one in found)
    line.broken = None
    assert await line.ask(3) == [3]


@scenario
async def test_a_round_of_an_old_session_that_breaks_off_late_fails_nothing_new() -> None:
    line, late = Line(), asyncio.Event()

    async def exchange(message: Round) -> Reply:
        if message.session[1] == 0 and message.patient:
            await late.wait()
            raise EngineError("late")
        if message.session[1] == 0:
            raise EngineError("early")
        return await line.desk.exchange(message)

    line.courier = Courier(exchange)
    first = asyncio.create_task(line.ask(1))
    await asyncio.sleep(0.005)
    second = asyncio.create_task(line.ask(2))
    ends = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(end) for end in ends] == ["early", "early"]
    third = asyncio.create_task(line.ask(40))
    await asyncio.sleep(0.01)
    late.set()
    assert await third == [40]


@scenario
async def test_a_round_that_is_cancelled_leaves_nobody_waiting() -> None:
    line = Line()
    call = asyncio.create_task(line.ask(60_000))
    await asyncio.sleep(0.01)
    (waiting,) = [task for task in asyncio.all_tasks() if "_Session._round" in str(task.get_coro())]
    waiting.cancel()
    with pytest.raises(EngineError, match="CancelledError"):
        await asyncio.wait_for(call, 1)
    assert await line.ask(2) == [2]
    await asyncio.sleep(0.01)
    assert line.playing == 0


@scenario
async def test_who_goes_away_is_not_played_for() -> None:
    line = Line()
    unsent = asyncio.create_task(line.ask(1, name="unsent"))
    await asyncio.sleep(0)
    unsent.cancel()
    sent = asyncio.create_task(line.ask(5_000, name="sent"))
    await asyncio.sleep(0.01)
    assert line.playing == 1
    sent.cancel()
    await asyncio.sleep(0.01)
    assert line.playing == 0
    assert await line.ask(8, name="last") == [8]
    assert line.names == ["sent", "last"]


@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_no_call_plays_on_for_nobody_however_rounds_overtake_each_other(seed: int) -> None:
    line, chance = Line(), random.Random(seed)

    async def exchange(message: Round) -> Reply:
        await asyncio.sleep(0.01 * chance.random())
        return await line.desk.exchange(message)

    line.courier = Courier(exchange)
    calls = []
    for _ in range(100):
        calls.append(asyncio.create_task(line.ask(60_000)))
        await asyncio.sleep(0.002 * chance.random())
    for call in calls:
        call.cancel()
        await asyncio.sleep(0.002 * chance.random())
    await asyncio.sleep(0.05)
    assert line.playing == 0
    assert await line.ask(3) == [3]


@scenario
async def test_a_restart_between_two_rounds_fails_what_was_under_way() -> None:
    line = Line()

    async def exchange(message: Round) -> Reply:
        reply = await line.desk.exchange(message)
        if message.serial == 0:
            line.desk = Desk(line.generate)
        return reply

    line.courier = Courier(exchange)
    ends = await asyncio.wait_for(asyncio.gather(line.ask(1), line.ask(50), return_exceptions=True), 5)
    assert ends[0] == [1]
    assert isinstance(ends[1], EngineError)
    assert "has restarted" in str(ends[1])
    assert await line.ask(2) == [2]


@scenario
async def test_a_restart_while_nothing_was_under_way_is_of_no_account() -> None:
    line = Line()
    for number in (1, 2):
        assert await line.ask(number) == [number]
        line.desk = Desk(line.generate)
    left = asyncio.create_task(line.ask(60_000))
    await asyncio.sleep(0.01)
    left.cancel()
    await asyncio.sleep(0)
    line.desk = Desk(line.generate)
    assert await line.ask(3) == [3]


@scenario
async def test_a_round_that_finds_a_new_desk_before_the_old_one_was_known_fails_the_session() -> None:
    line, held = Line(), asyncio.Event()

    async def exchange(message: Round) -> Reply:
        reply = await line.desk.exchange(message)
        if message.serial == 0:
            line.desk = Desk(line.generate)
            await held.wait()
        return reply

    line.courier = Courier(exchange)
    first = asyncio.create_task(line.ask(1))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(line.ask(2_000))
    await asyncio.sleep(0.01)
    held.set()
    ends = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 1)
    assert [type(end) for end in ends] == [EngineError, EngineError]


@scenario
async def test_two_couriers_of_one_desk_get_their_own_answers() -> None:
    line = Line()
    other = Courier(line.exchange)
    mine, (theirs,) = await asyncio.gather(line.ask(5), other.generate([3], SPEC))
    assert mine == [5]
    assert theirs.token_ids.tolist() == [3]


class Elsewhere:
    """A line whose desk lives in a thread, so that it outlives the loops of those that ask."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.line = Line()
        self.courier = Courier(self.exchange)

    async def exchange(self, message: Round) -> Reply:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.line.exchange(message), self.loop))

    async def ask(self, number: int) -> int:
        (found,) = await self.courier.generate([number], SPEC)
        return int(found.token_ids[0])

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def test_a_courier_outlives_its_event_loop() -> None:
    line = Elsewhere()

    async def leaves() -> None:
        left = asyncio.create_task(line.ask(60_000))
        await line.ask(20)
        del left

    for number in (3, 4):
        asyncio.run(asyncio.wait_for(leaves(), 5))
        assert asyncio.run(asyncio.wait_for(line.ask(number), 5)) == number
    assert line.line.playing == 0
    line.close()


class MortalLine(Line):
    """A line that delays everything at random, loses rounds on both ways, and whose process dies now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.dead = asyncio.Event()

    def restart(self) -> None:
        self.desk, self.dead = Desk(self.generate), asyncio.Event()

    async def play(self, token: int) -> Completion:
        await asyncio.sleep(self.random.choice((0, 0.001, 0.01)) * self.random.random())
        if self.random.random() < 0.02:
            raise EngineError("one of many")
        if self.random.random() < 0.005:
            raise asyncio.CancelledError
        return one_token(token)

    async def exchange(self, message: Round) -> Reply:
        here, dead = self.desk, self.dead
        await asyncio.sleep(0.003 * self.random.random())
        answers = asyncio.ensure_future(here.exchange(message))
        death = asyncio.ensure_future(dead.wait())
        await asyncio.wait([answers, death], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.003 * self.random.random())
        death.cancel()
        if dead.is_set():
            answers.cancel()
            raise EngineError("gone or restarting")
        if self.random.random() < 0.01:
            raise EngineError("lost on the way back")
        return answers.result()


@pytest.mark.parametrize("quiet", [0.02, 0.0], ids=["dead for a while", "back at once"])
@pytest.mark.parametrize("seed", range(3))
@scenario
async def test_every_call_ends_while_rounds_are_lost_desks_restart_and_callers_leave(seed: int, quiet: float) -> None:
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
            await asyncio.sleep(quiet)
            line.restart()

    ends, _ = await asyncio.gather(asyncio.gather(*(caller(number) for number in range(500))), reaper())
    # Not empty: on a busy machine more calls are under way whenever a round is lost.
    assert ends.count("answered") > 50
    assert ends.count("failed") > 10
    await asyncio.sleep(0.05)
    assert line.playing == 0
