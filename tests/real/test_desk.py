from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from entr_lab.errors import EngineError
from entr_lab.real import desk
from entr_lab.real.desk import Desk, Order, Reply, Round, as_ours
from entr_lab.real.records import Completion, SampleCall, SamplingSpec
from tests.real.coroutines import one_token, scenario

SPEC = SamplingSpec()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "LINGER", 0.002)


class Player:
    """Answers prompt `[k]` after `k` milliseconds with token `k`, and knows what it plays."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.playing: set[int] = set()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int, request_id: str | None
    ) -> list[Completion]:
        (token,) = prompt_ids
        self.begun.append(token)
        self.playing.add(token)
        try:
            await asyncio.sleep(token / 1000)
            if token == 13:
                raise asyncio.CancelledError
            return [one_token(token)] * n
        finally:
            self.playing.discard(token)


def order(number: int, token: int) -> Order:
    return Order(number, SampleCall((token,), SPEC), 1)


def message(
    serial: int,
    *orders: Order,
    wanted: Sequence[int] = (),
    issued: int = 0,
    patient: bool = True,
    session: tuple[str, int] = ("c", 0),
    at: str | None = None,
) -> Round:
    return Round(session, at, serial, orders, frozenset(wanted), issued, patient)


def numbers(reply: Reply) -> list[int]:
    return [number for number, _ in reply.answers]


@scenario
async def test_answers_come_back_under_their_numbers_and_once() -> None:
    here = Desk(Player().generate)
    first = await here.exchange(message(0, order(4, 1), order(9, 30), wanted=[4, 9], issued=10))
    ((number, (found,)),) = first.answers
    assert (number, found.token_ids.tolist(), first.desk) == (4, [1], here.name)
    assert numbers(await here.exchange(message(1, wanted=[9], issued=10))) == [9]
    assert numbers(await here.exchange(message(2, patient=False, issued=10))) == []


@scenario
async def test_a_round_carries_a_limited_number_of_answers_and_the_rest_is_not_lost() -> None:
    here, count = Desk(Player().generate), desk.MOST * 2 + 3
    orders = [order(number, number % 2) for number in range(count)]
    found = numbers(await here.exchange(message(0, *orders, wanted=range(count), issued=count, patient=False)))
    sizes = []
    while len(found) < count:
        left = set(range(count)) - set(found)
        reply = await asyncio.wait_for(here.exchange(message(len(sizes) + 1, wanted=[*left], issued=count)), 1)
        sizes.append(len(reply.answers))
        found += numbers(reply)
    assert sorted(found) == list(range(count))
    assert max(sizes) == desk.MOST


@scenario
async def test_what_is_not_wanted_any_more_is_stopped() -> None:
    player = Player()
    here = Desk(player.generate)
    await here.exchange(message(0, order(0, 900), order(1, 901), wanted=[0, 1], issued=2, patient=False))
    await asyncio.sleep(0.005)
    assert player.playing == {900, 901}
    await here.exchange(message(1, wanted=[1], issued=2, patient=False))
    await asyncio.sleep(0)
    assert player.playing == {901}


@scenario
async def test_a_round_does_not_wait_where_nothing_is_played_any_more() -> None:
    here = Desk(Player().generate)
    waiting = asyncio.create_task(here.exchange(message(0, order(0, 900), wanted=[0], issued=1)))
    await asyncio.sleep(0.005)
    await here.exchange(message(1, issued=1, patient=False))
    assert numbers(await asyncio.wait_for(waiting, 1)) == []
    assert numbers(await asyncio.wait_for(here.exchange(message(2, issued=1)), 1)) == []


@scenario
async def test_an_order_that_arrives_after_the_word_that_it_is_not_wanted_is_never_begun() -> None:
    player = Player()
    here = Desk(player.generate)
    await here.exchange(message(2, order(3, 903), wanted=[1, 3], issued=4, patient=False))
    await here.exchange(message(1, order(1, 901), order(2, 902), wanted=[0, 1, 2], issued=3, patient=False))
    await asyncio.sleep(0.005)
    assert player.playing == {901, 903}
    assert 902 not in player.begun


@scenario
async def test_a_round_that_was_overtaken_stops_nothing_that_is_newer() -> None:
    player = Player()
    here = Desk(player.generate)
    await here.exchange(message(1, order(1, 901), wanted=[0, 1], issued=2, patient=False))
    await here.exchange(message(0, order(0, 900), wanted=[0], issued=1, patient=False))
    await asyncio.sleep(0.005)
    assert player.playing == {900, 901}


@scenario
async def test_a_later_session_replaces_an_earlier_one_and_lets_its_round_go() -> None:
    player = Player()
    here = Desk(player.generate)
    old = asyncio.create_task(here.exchange(message(0, order(0, 900), wanted=[0], issued=1)))
    await asyncio.sleep(0.005)
    new = await here.exchange(message(0, order(0, 1), wanted=[0], issued=1, session=("c", 1)))
    ((_, (found,)),) = new.answers
    assert found.token_ids.tolist() == [1]
    assert player.playing == set()
    with pytest.raises(EngineError, match="another session"):
        await asyncio.wait_for(old, 1)
    with pytest.raises(EngineError, match="another session"):
        await here.exchange(message(1, session=("c", 0)))


@scenario
async def test_couriers_do_not_get_each_others_answers() -> None:
    here = Desk(Player().generate)
    asked = [
        message(0, order(0, token), wanted=[0], issued=1, session=(name, 0)) for name, token in (("a", 1), ("b", 2))
    ]
    replies = await asyncio.gather(*(here.exchange(one) for one in asked))
    assert [reply.answers[0][1][0].token_ids.tolist() for reply in replies] == [[1], [2]]  # type: ignore[index]


@scenario
async def test_a_session_of_another_desk_is_refused() -> None:
    with pytest.raises(EngineError, match="has restarted"):
        await Desk(Player().generate).exchange(message(3, at="another"))


@scenario
async def test_a_generator_that_cancels_a_call_by_itself_has_failed() -> None:
    reply = await asyncio.wait_for(Desk(Player().generate).exchange(message(0, order(0, 13), wanted=[0], issued=1)), 1)
    ((_, error),) = reply.answers
    assert isinstance(error, EngineError)


@scenario
async def test_a_closed_desk_lets_waiting_rounds_go_stops_what_runs_and_refuses_more() -> None:
    player = Player()
    here = Desk(player.generate)
    waiting = asyncio.create_task(here.exchange(message(0, order(0, 10_000), wanted=[0], issued=1)))
    await asyncio.sleep(0.005)
    here.close()
    with pytest.raises(EngineError, match="shutting down"):
        await asyncio.wait_for(waiting, 1)
    assert player.playing == set()
    with pytest.raises(EngineError, match="shutting down"):
        await here.exchange(message(1))


def test_other_errors_are_quoted() -> None:
    ours = EngineError("x")
    assert as_ours(ours) is ours
    assert "KeyError" in str(as_ours(KeyError("k")))
