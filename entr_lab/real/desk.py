"""The end of the generator's process that plays the orders of couriers; see `courier`. Ours."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from entr_lab.errors import EngineError, EntrLabError
from entr_lab.real.records import Completion, SampleCall, SamplingSpec

__all__ = ["LINGER", "MOST", "RESTARTED", "Answer", "Desk", "Order", "Reply", "Round", "as_ours"]

LINGER: Final = 0.02
"""Seconds for which a waiting round stays after the first completion, unless there are `MOST`."""
MOST: Final = 16
"""Answers of one round. Where many rollouts end at once, the first are replaced while the others are on their way."""

RESTARTED: Final = "the generator has restarted; push the current weights again."
_CLOSED: Final = "the generator is shutting down; start another one."
_REPLACED: Final = "its courier has begun another session."


@dataclass(frozen=True, slots=True)
class Order:
    """One call on its way to the desk.

    Args:
        number: that its answer comes back under.
        call: what to sample.
        n: completions.
    """

    number: int
    call: SampleCall
    n: int


@dataclass(frozen=True, slots=True)
class Round:
    """One message to the desk.

    Args:
        session: the courier's name and the number of its session; a later session replaces an earlier one.
        desk: that the session has to do with; None as long as it does not know.
        serial: of the round in its session; rounds may overtake each other.
        orders: new ones.
        wanted: numbers of all orders whose answers the courier still waits for.
        issued: the orders numbered below it that are not `wanted` are to be stopped.
        patient: whether to wait for an answer.
    """

    session: tuple[str, int]
    desk: str | None
    serial: int
    orders: tuple[Order, ...]
    wanted: frozenset[int]
    issued: int
    patient: bool


Answer = tuple[int, "list[Completion] | EntrLabError"]
"""An order's number, and its completions or why there are none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a round brings back: the desk's name, and answers that no other round has taken."""

    desk: str
    answers: list[Answer]


Generate = Callable[[Sequence[int], SamplingSpec, int, str | None], Awaitable[list[Completion]]]
"""A generator's `generate`."""


def as_ours(error: BaseException) -> EntrLabError:
    """Return the error if it is one of ours, or one that quotes it."""
    return error if isinstance(error, EntrLabError) else EngineError(f"the generator failed: {error!r}")


class Desk:
    """Plays orders and keeps the answers until a round takes them.

    Args:
        generate: plays one order.
    """

    def __init__(self, generate: Generate) -> None:
        self.name = uuid.uuid4().hex
        self._generate = generate
        self._trays: dict[str, _Tray] = {}
        self._closed = False

    async def exchange(self, message: Round) -> Reply:
        """Take orders and return the answers that are there; a patient round waits for one, then for more.

        Raises:
            EngineError: the desk is closed, is not the one that the session has to do with, or the session is over.
        """
        if self._closed:
            raise EngineError(_CLOSED)
        if message.desk not in (None, self.name):
            raise EngineError(RESTARTED)
        tray = self._tray(message.session)
        tray.read(message)
        if message.patient:
            await tray.patience()
        tray.check()
        return Reply(self.name, tray.take())

    def close(self) -> None:
        """Stop what is being played, refuse what comes, and let waiting rounds go."""
        self._closed = True
        for tray in self._trays.values():
            tray.end(_CLOSED)

    def _tray(self, session: tuple[str, int]) -> _Tray:
        courier, number = session
        tray = self._trays.get(courier)
        if tray is not None and tray.session < number:
            tray.end(_REPLACED)
        if tray is None or tray.session < number:
            tray = self._trays[courier] = _Tray(number, self._play)
        if tray.session > number:
            raise EngineError(_REPLACED)
        return tray

    async def _play(self, order: Order) -> list[Completion]:
        call = order.call
        return await self._generate(call.prompt_ids, call.sampling, order.n, call.request_id)


class _Tray:
    """Orders and answers of one session."""

    def __init__(self, session: int, play: Callable[[Order], Awaitable[list[Completion]]]) -> None:
        self.session = session
        self._play = play
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._answers: list[Answer] = []
        self._filled = asyncio.Event()
        self._serial, self._wanted, self._issued = -1, frozenset[int](), 0  # of the latest round; only it counts
        self._over = ""

    def read(self, message: Round) -> None:
        """Begin the orders of a round and stop what is not wanted any more."""
        if message.serial > self._serial:
            self._serial, self._wanted, self._issued = message.serial, message.wanted, message.issued
            for number in [number for number in self._tasks if not self._wants(number)]:
                self._tasks.pop(number).cancel()
        for order in message.orders:
            if self._wants(order.number):
                self._tasks[order.number] = asyncio.create_task(self._work(order))
        if not self._tasks:
            self._filled.set()  # a round that waits has nothing to wait for

    def _wants(self, number: int) -> bool:
        return number in self._wanted or number >= self._issued

    async def patience(self) -> None:
        """Wait for an answer, then for more; not if nothing is played that could give one."""
        if self._tasks:
            await self._filled.wait()
        if self._answers and len(self._answers) < MOST:
            await asyncio.sleep(LINGER)

    def check(self) -> None:
        """Raise if the session is over."""
        if self._over:
            raise EngineError(self._over)

    def take(self) -> list[Answer]:
        """Return the oldest answers, and forget them: if they are lost on the way, so is the session."""
        answers, self._answers = self._answers[:MOST], self._answers[MOST:]
        if not self._answers:
            self._filled.clear()
        return answers

    def end(self, reason: str) -> None:
        """Stop everything and let a waiting round go."""
        self._over = reason
        while self._tasks:
            self._tasks.popitem()[1].cancel()
        self._answers.clear()
        self._filled.set()

    async def _work(self, order: Order) -> None:
        answer: list[Completion] | EntrLabError
        try:
            answer = await self._play(order)
        except Exception as error:
            answer = as_ours(error)
        except asyncio.CancelledError:
            if order.number not in self._tasks:
                raise
            answer = EngineError("the generator cancelled a call by itself; ask again.")
        if self._tasks.pop(order.number, None) is not None:
            self._answers.append((order.number, answer))
            self._filled.set()
