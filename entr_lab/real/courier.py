"""Completions by the round: calls go to another process together, and come back together.

A message between processes costs, on both sides together, the processor time of some twenty tokens of a tiny model. The
`Courier`, in the driver, gathers the calls of a few milliseconds into one round; the `Desk`, in the generator's
process, hands over whatever has ended. One round waits at the desk for completions; calls that come up meanwhile travel
in rounds that do not wait. Completions come up to `LINGER` later than they could.

Limits: the desk forgets an answer once a round has taken it, so what is lost on the way back leaves its call waiting;
so do a desk that is new between two rounds, and a second event loop. A call that is cancelled once its order has been
sent plays on unless it is aborted, and an abort may arrive before the order has begun. Ours.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from entr_lab.errors import EngineError, EntrLabError
from entr_lab.real.records import Completion, SampleCall, SamplingSpec

__all__ = ["GATHER", "LINGER", "MOST", "Answer", "Courier", "Desk", "Order"]

GATHER: Final = 0.004
"""Seconds for which the courier gathers calls: as long as a loop takes from a completion to the call that follows."""
LINGER: Final = 0.01
"""Seconds for which a waiting round stays after the first completion, unless there are `MOST`."""
MOST: Final = 16
"""Answers of one round. Where many rollouts end at once, the first are replaced while the others are on their way."""


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


Answer = tuple[int, "list[Completion] | EntrLabError"]
"""An order's number, and its completions or why there are none."""

Generate = Callable[[Sequence[int], SamplingSpec, int, str | None], Awaitable[list[Completion]]]
"""A generator's `generate`."""
Exchange = Callable[[Sequence[Order], bool], Awaitable[list[Answer]]]
"""`Desk.exchange`, from where the courier is."""


def _as_ours(error: Exception) -> EntrLabError:
    return error if isinstance(error, EntrLabError) else EngineError(f"the generator failed: {error!r}")


class Desk:
    """The end of the process that samples.

    Args:
        generate: plays one order.
    """

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: list[Answer] = []
        self._filled = asyncio.Event()

    async def exchange(self, orders: Sequence[Order], patient: bool) -> list[Answer]:
        """Take orders and return the answers that nobody has fetched yet; `patient` waits for one, then for more."""
        for order in orders:
            task = asyncio.create_task(self._play(order))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if patient:
            await self._filled.wait()
            if len(self._answers) < MOST:
                await asyncio.sleep(LINGER)
        answers, self._answers = self._answers[:MOST], self._answers[MOST:]
        if not self._answers:
            self._filled.clear()
        return answers

    def close(self) -> None:
        """Drop what is being played and let a waiting round go."""
        for task in self._tasks:
            task.cancel()
        self._filled.set()

    async def _play(self, order: Order) -> None:
        call = order.call
        answer: list[Completion] | EntrLabError
        try:
            answer = await self._generate(call.prompt_ids, call.sampling, order.n, call.request_id)
        except Exception as error:
            answer = _as_ours(error)
        self._answers.append((order.number, answer))
        self._filled.set()


class Courier:
    """The end of the process that asks; of one event loop.

    Args:
        exchange: one round to the desk and back.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._numbers = itertools.count()
        self._open: dict[int, asyncio.Future[list[Completion]]] = {}
        self._outbox: list[Order] = []
        self._timer: asyncio.TimerHandle | None = None
        self._rounds: set[asyncio.Task[None]] = set()
        self._waiting = False
        """Whether a round waits at the desk."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """See `Generator.generate`; a round that breaks off fails every call that was under way."""
        number, answer = next(self._numbers), asyncio.get_running_loop().create_future()
        self._open[number] = answer
        self._outbox.append(Order(number, SampleCall(tuple(prompt_ids), sampling, request_id), n))
        self._wake()
        try:
            completions: list[Completion] = await answer
            return completions
        finally:
            del self._open[number]

    def _wake(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._send)

    def _send(self) -> None:
        self._timer = None
        orders = [order for order in self._outbox if order.number in self._open]
        self._outbox.clear()
        patient = not self._waiting
        if orders or (patient and self._open):
            self._waiting = True  # by this round or by the one that waits already
            task = asyncio.create_task(self._round(orders, patient))
            self._rounds.add(task)
            task.add_done_callback(self._rounds.discard)

    async def _round(self, orders: Sequence[Order], patient: bool) -> None:
        try:
            answers = await self._exchange(orders, patient)
        except Exception as error:
            unsent = {order.number for order in self._outbox}
            answers = [(number, _as_ours(error)) for number in self._open if number not in unsent]
        finally:
            if patient:
                self._waiting = False
        for number, found in answers:
            answer = self._open.get(number)  # None: whoever asked has gone away
            if answer is None or answer.done():
                continue
            if isinstance(found, EntrLabError):
                answer.set_exception(found)
            else:
                answer.set_result(found)
        if self._open:
            self._wake()
