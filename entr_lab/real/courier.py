"""Completions by the round: calls go to another process together, and come back together.

A message between processes costs, on both sides together, the processor time of some twenty tokens of a tiny model. The
`Courier`, in the driver, gathers the calls of a few milliseconds into one round; the `Desk`, in the generator's
process, hands over whatever has ended. One round waits at the desk for completions; calls that come up meanwhile travel
in rounds that do not wait. Completions come up to `LINGER` later than they could.

Every round says which calls are still wanted, so that the desk stops what is not, whether its order came before or
comes after. A session lasts until no call is open; a round that breaks off ends it too, and fails all its calls. Ours.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from entr_lab.errors import EngineError, EntrLabError
from entr_lab.real.desk import RESTARTED, Answer, Order, Reply, Round, as_ours
from entr_lab.real.records import Completion, SampleCall, SamplingSpec

__all__ = ["GATHER", "Courier"]

GATHER: Final = 0.004
"""Seconds for which the courier gathers calls: as long as a loop takes from a completion to the call that follows."""

Exchange = Callable[[Round], Awaitable[Reply]]
"""`Desk.exchange`, from where the courier is."""


class Courier:
    """The end of the process that asks; of one event loop at a time.

    Args:
        exchange: one round to the desk and back.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._name = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._session: _Session | None = None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """See `Generator.generate`; a round that breaks off fails every call that was under way."""
        loop, session = asyncio.get_running_loop(), self._session
        if session is None or session.idle or session.loop is not loop:
            session = self._session = _Session(self._exchange, (self._name, next(self._numbers)), loop)
        # What cannot travel fails here, not with all of its round.
        prompt, name = tuple(int(token) for token in prompt_ids), None if request_id is None else str(request_id)
        return await session.ask(SampleCall(prompt, sampling, name), n)


class _Session:
    """Calls between two failures.

    Args:
        exchange: one round to the desk and back.
        name: of the courier and its how many'th session.
        loop: that it runs on.
    """

    def __init__(self, exchange: Exchange, name: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.over = False
        self._exchange, self._name = exchange, name
        self._serials, self._issued = itertools.count(), 0
        self._open: dict[int, asyncio.Future[list[Completion]]] = {}
        self._outbox: list[Order] = []
        self._desk: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rounds: set[asyncio.Task[None]] = set()
        self._waiting = False
        """Whether a round waits at the desk."""
        self._unwanted = False
        """Whether a call has gone away that the desk was told of."""

    @property
    def idle(self) -> bool:
        """Whether nobody waits for it, so that the next call need not care whether the desk is still the same."""
        return self.over or not self._open

    async def ask(self, call: SampleCall, n: int) -> list[Completion]:
        """Return the completions of one call."""
        number, answer = self._issued, self.loop.create_future()
        self._issued += 1
        self._open[number] = answer
        self._outbox.append(Order(number, call, n))
        self._wake()
        try:
            completions: list[Completion] = await answer
            return completions
        except asyncio.CancelledError:
            self._unwanted = True
            self._wake()
            raise
        finally:
            del self._open[number]

    def _wake(self) -> None:
        if self._timer is None and not self.over:
            self._timer = self.loop.call_later(GATHER, self._send)

    def _send(self) -> None:
        self._timer = None
        orders = tuple(order for order in self._outbox if order.number in self._open)
        self._outbox.clear()
        patient = bool(self._open) and not self._waiting
        if self.over or not (orders or patient or self._unwanted):
            return
        self._waiting |= patient
        self._unwanted = False
        task = asyncio.create_task(self._round(self._message(orders, patient)))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    def _message(self, orders: tuple[Order, ...], patient: bool) -> Round:
        wanted = frozenset(self._open)
        return Round(self._name, self._desk, next(self._serials), orders, wanted, self._issued, patient)

    async def _round(self, message: Round) -> None:
        try:
            reply = await self._exchange(message)
            if self._desk not in (None, reply.desk):
                raise EngineError(RESTARTED)
        except BaseException as error:
            self._end(error)
            if not isinstance(error, Exception):  # a cancelled round leaves nobody waiting either
                raise
            return
        self._desk = reply.desk
        self._waiting &= not message.patient
        for answer in reply.answers:
            self._deliver(answer)
        if self._open:
            self._wake()

    def _deliver(self, answer: Answer) -> None:
        number, found = answer
        asked = self._open.get(number)
        if asked is None or asked.done():  # whoever asked has gone away
            return
        if isinstance(found, EntrLabError):
            asked.set_exception(found)
        else:
            asked.set_result(found)

    def _end(self, error: BaseException) -> None:
        self.over = True
        for asked in self._open.values():
            if not asked.done():
                asked.set_exception(as_ours(error))
