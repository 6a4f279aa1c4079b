"""One generator as the loop drives it: the rollouts that it plays, its weight updates, its death and return.

A station only reports, through one queue, in an order that is true: a rollout with tokens of new weights is reported
after the update that brought them. It decides nothing; the pipeline does. Ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

from entr_lab.errors import EngineError
from entr_lab.pipeline import Trajectory
from entr_lab.real.episode import SamplesTokens
from entr_lab.real.forced_lag import PlannedTrajectory, VersionGate
from entr_lab.real.ports import GeneratorPort
from entr_lab.real.records import Rollout
from entr_lab.real.reports import Broken, Evaluated, Failed, Finished, Gone, Joined, Loaded, Lost, Report
from entr_lab.real.version_shelf import VersionShelf

__all__ = ["Play", "Station"]

_FAREWELL: Final = 1.0
"""Seconds after a failed update until a dying actor has left, so that it is not taken for healthy."""
_DEAF: Final = 1.0
"""Seconds after which what goes on in spite of a cancellation is cancelled again."""

Play = Callable[[SamplesTokens, int, str], Awaitable[Rollout]]
"""Plays sample number `int` on a generator; the text is the stem of the requests' names."""


class Station:
    """See the module.

    Args:
        name: the worker's name in the pipeline.
        generator: started, its weights of no account.
        play: one trajectory.
        shelf: published weights.
        report: receives what happens.
        clear_cache: recompute the key-value cache of running requests at an update.
        forced: mode exact; weights change by each trajectory's plan and `update` is never called.
        max_tokens: most tokens of a trajectory.
    """

    def __init__(
        self,
        name: str,
        generator: GeneratorPort,
        play: Play,
        shelf: VersionShelf,
        report: Callable[[Report], None],
        *,
        clear_cache: bool,
        forced: bool,
        max_tokens: int,
    ) -> None:
        self.name, self.generator = name, generator
        self.version = -1
        self.present = False
        """Whether the generator takes work."""
        self.coming = False
        """Whether it is being started or revived."""
        self.busy = False
        """Whether an update is under way."""
        self._play, self._shelf, self._report = play, shelf, report
        self._clear_cache, self._forced, self._max_tokens = clear_cache, forced, max_tokens
        self._gate = VersionGate(generator, shelf)
        self._episodes: dict[int, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[Any]] = set()
        self._loaded = asyncio.Condition()
        self._evaluation: asyncio.Task[None] | None = None

    @property
    def active(self) -> int:
        """Rollouts that are being played."""
        return len(self._episodes)

    @property
    def idle(self) -> bool:
        """Whether nothing at all is under way here."""
        return not self._episodes and not self._others

    def bring_up(self, *, revive: bool = False) -> None:
        """Give the generator the newest weights and report `Joined`."""
        self.coming = True
        self._begin(self._bring_up, revive)

    def update(self, version: int) -> None:
        """Load a version and report `Loaded`."""
        self.busy = True
        self._begin(self._update, version)

    def start(self, trajectory: Trajectory, sample: int) -> None:
        """Play a rollout and report `Finished` or `Failed`."""
        source = self._source(trajectory.version, trajectory.last_version)
        self._episodes[trajectory.ticket] = asyncio.create_task(self._episode(trajectory, sample, source))

    @property
    def up_to_date(self) -> bool:
        """Whether what starts now is sampled under the newest weights."""
        return self._forced or self.version == self._shelf.newest.version

    def evaluate(self, play: Play, numbers: Sequence[int]) -> None:
        """Play held-out samples beside the others and report `Evaluated`."""
        self._evaluation = self._begin(self._evaluate, play, numbers)

    def stop(self, ticket: int) -> None:
        """Stop a rollout that is no longer wanted; nothing is reported of it."""
        if ticket in self._episodes:
            self._episodes.pop(ticket).cancel()

    async def close(self) -> None:
        """Stop everything that runs here; the generator itself stays."""
        tasks: set[asyncio.Task[Any]] = {*self._episodes.values(), *self._others}
        while tasks:  # somebody's environment may have taken a cancellation for its own
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_DEAF)
        await self._gate.close()
        self._episodes.clear()

    def _begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work(*arguments))
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task

    async def _bring_up(self, revive: bool) -> None:
        try:
            with self._shelf.loading(self._shelf.newest.version) as manifest:
                if revive:
                    await self.generator.revive(manifest)
                else:
                    await self.generator.update_weights(manifest, clear_cache=True)
        except Exception as error:
            self._report(Gone(self.name, error) if revive else Broken(error))
            return
        finally:
            self.coming = False
        await self._gate.close()
        self._gate = VersionGate(self.generator, self._shelf)
        self._gate.current = manifest.version
        self.present, self.busy = True, False
        await self._now_at(manifest.version)
        self._report(Joined(self.name, manifest.version))

    async def _update(self, version: int) -> None:
        try:
            with self._shelf.loading(version) as manifest:
                await self.generator.update_weights(manifest, self._clear_cache)
        except Exception as error:
            await asyncio.sleep(_FAREWELL)
            await self._judge(error, Broken(error))
            return
        self.busy = False
        if self.present:
            self._report(Loaded(self.name, version))
            await self._now_at(version)

    async def _now_at(self, version: int) -> None:
        async with self._loaded:
            self.version = version
            self._loaded.notify_all()

    async def _episode(self, trajectory: Trajectory, sample: int, source: SamplesTokens) -> None:
        ticket = trajectory.ticket
        try:
            rollout = await self._play(source, sample, f"t{ticket}")
            if not self._forced:
                # The engine had new weights before it said so; the rollout may be here before the update is reported.
                async with self._loaded:
                    await self._loaded.wait_for(lambda: self.version >= int(rollout.weight_version.max()))
        except Exception as error:
            self._episodes.pop(ticket, None)
            await self._judge(error, Failed(self.name, ticket, error))
            return
        self._episodes.pop(ticket, None)
        self._report(Finished(self.name, trajectory, rollout))

    async def _evaluate(self, play: Play, numbers: Sequence[int]) -> None:
        version = self._shelf.newest.version
        with self._shelf.loading(version):
            calls = (play(self._source(version, version, True), number, f"e{version}-{number}") for number in numbers)
            answers = await asyncio.gather(*calls, return_exceptions=True)
        rollouts = [answer for answer in answers if isinstance(answer, Rollout)]
        report = Evaluated(self.name, rollouts, len(answers) - len(rollouts))
        error = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if error is None:
            self._report(report)
        else:
            await self._judge(error, report)

    def _source(self, first: int, last: int, urgent: bool = False) -> SamplesTokens:
        if not self._forced:
            return self.generator
        return PlannedTrajectory(self._gate, first, last, self._max_tokens, urgent=urgent)

    async def _judge(self, error: Exception, otherwise: Report) -> None:
        """Report a dead generator once, and anything else as what it is."""
        if not self.present:
            return
        if isinstance(error, EngineError):
            try:
                await self.generator.health()
            except EngineError as death:
                if self.present:
                    self.present = False
                    if self._evaluation is not None and self._evaluation is not asyncio.current_task():
                        self._evaluation.cancel()  # it is made again
                    for task in self._episodes.values():
                        task.cancel()
                    self._episodes.clear()
                    self._report(Lost(self.name, death))
                return
        self._report(otherwise)
