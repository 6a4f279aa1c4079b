"""The loop: feeds a `Pipeline` with the wall clock and does what it decides. Plain asyncio, no Ray, no engine.

Stations and the trainer work in tasks and report through one queue; every report is handled, then everything that may
start is started. The same loop runs with actors, with plain objects, and with the tests' fakes. Ours.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from entr_lab.errors import EngineError
from entr_lab.pipeline import Batch, Done, Mode, Outcome, Pipeline, Wait, spans_of
from entr_lab.real.evaluation import Evaluations
from entr_lab.real.fleet import Fleet
from entr_lab.real.loop_settings import LoopSettings
from entr_lab.real.ports import GeneratorPort, TrainerPort
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.reports import (
    Broken,
    Evaluated,
    Failed,
    Finished,
    Gone,
    Joined,
    Loaded,
    Lost,
    Report,
    Saved,
    Trained,
)
from entr_lab.real.rollout_buffer import RolloutBuffer
from entr_lab.real.station import Play, Station
from entr_lab.real.step_report import StepMeter, StepReport
from entr_lab.real.trainer_station import Saver, TrainerStation
from entr_lab.real.version_shelf import VersionShelf

__all__ = ["Loop"]

_MOST_FAILURES: Final = 32
"""Rollouts that may fail one after another before the run gives up."""


def _due(count: int, every: int) -> bool:
    """Whether something that happens every so many times, 0 for never, happens at `count`."""
    return every > 0 and count % every == 0


class Loop:
    """One run.

    Args:
        pipeline: fresh, or restored and recovered; its `closed` callback must be `buffer.closed`.
        buffer: rollouts that wait for training.
        trainer: at the version that the pipeline publishes next.
        generators: by worker name.
        play: one trajectory.
        feed: prompts.
        settings: numbers.
        done: batches trained before.
        on_step: called after every batch.
        save: writes a checkpoint.
        evaluations: when and on what to evaluate; None for never.
        clock: seconds.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        buffer: RolloutBuffer,
        trainer: TrainerPort,
        generators: Mapping[str, GeneratorPort],
        play: Play,
        feed: PromptFeed,
        settings: LoopSettings,
        *,
        done: int = 0,
        on_step: Callable[[StepReport], None] = lambda report: None,
        save: Saver | None = None,
        evaluations: Evaluations | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pipeline, self.buffer, self.feed = pipeline, buffer, feed
        self.settings, self.shelf = settings, VersionShelf()
        self._forced = pipeline.config.admission.mode is Mode.EXACT
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self.trainer = TrainerStation(trainer, self._reports.put_nowait)
        self._on_step, self._save, self._clock = on_step, save, clock
        self.fleet = Fleet(self._make_stations(generators, play), pipeline, settings.room)
        self._evaluations, self._failures = evaluations or Evaluations(), 0
        self.done = done
        """Batches trained, those before a resume included."""
        self.meter = StepMeter(clock(), generators)

    async def run(self) -> None:
        """Train until `settings.batches` are done.

        Raises:
            EngineError: the trainer or the last generator is gone, an update failed its proof, rollouts fail one after
                another, or nothing can go on; the message says which.
        """
        try:
            self.shelf.put(await self.trainer.trainer.publish())
            self._evaluations.consider(self.done, last=False)
            self.fleet.bring_up()
            while not self._advance():
                await self._wait()
        finally:
            await asyncio.gather(self.trainer.close(), self.fleet.close(), return_exceptions=True)

    def _make_stations(self, generators: Mapping[str, GeneratorPort], play: Play) -> dict[str, Station]:
        return {
            name: Station(
                name,
                generator,
                play,
                self.shelf,
                self._reports.put_nowait,
                clear_cache=self.settings.clear_cache,
                forced=self._forced,
                max_tokens=self.settings.max_tokens,
            )
            for name, generator in generators.items()
        }

    # --- what happened ----------------------------------------------------------------------------------------------

    async def _wait(self) -> None:
        await asyncio.sleep(0)  # tasks that have ended leave their books
        deadline = self.pipeline.next_deadline
        limit = None if deadline is None else max(0.0, deadline - self._clock())
        if limit is None and self._reports.empty() and not self.trainer.busy and self.fleet.idle:
            raise EngineError(
                f"nothing is running and nothing can start: {self.meter.states()}; check asynchrony.* for limits that "
                f"exclude each other."
            )
        try:
            reports = [await asyncio.wait_for(self._reports.get(), limit)]
        except TimeoutError:
            self.pipeline.expire(self._clock())
            return
        while not self._reports.empty():
            reports.append(self._reports.get_nowait())
        for report in reports:
            self._handle(report)

    def _handle(self, report: Report) -> None:
        now, pipeline = self._clock(), self.pipeline
        match report:
            case Finished():
                self._finish(report, now)
            case Failed():
                self._fail(report.ticket, report.error, now)
            case Loaded():
                pipeline.update(report.worker, report.version, now)
                self._let_go()
            case Joined():
                pipeline.join(report.worker, report.version)
            case Lost():
                self.meter.lost += 1
                pipeline.lose(report.worker, now)
                self._evaluations.lost(report.worker)
                self.fleet.revive(report.worker)
            case Gone():
                if self.fleet.lost:
                    raise EngineError(f"no generator is left: {report.error}") from report.error
            case Evaluated():
                self._evaluations.settle(report)
            case Broken():
                raise report.error
            case Trained():
                self._publish(report, now)
            case Saved():
                self.trainer.settle()

    def _finish(self, report: Finished, now: float) -> None:
        rollout, trajectory = report.rollout, report.trajectory
        if not math.isfinite(rollout.reward):
            error = EngineError(f"sample {rollout.sample.get('id')!r} was given the reward {rollout.reward!r}.")
            self._fail(trajectory.ticket, error, now)
            return
        spans = spans_of(rollout.weight_version.tolist())
        outcome = self.pipeline.complete(trajectory.ticket, spans, rollout.reward, now)
        if outcome in (Outcome.OPEN, Outcome.READY):
            self.buffer.put(trajectory.group, trajectory.ticket, rollout)
        self._failures = 0
        self.meter.tokens += int(rollout.trainable.sum())

    def _fail(self, ticket: int, error: Exception, now: float) -> None:
        self.pipeline.fail(ticket, now)
        self._failures += 1
        self.meter.failed += 1
        if self._failures >= _MOST_FAILURES:
            raise EngineError(
                f"{self._failures} rollouts failed one after another; the last: {type(error).__name__}: {error}"
            ) from error

    def _publish(self, trained: Trained, now: float) -> None:
        result, batch = trained.result, trained.batch
        rollouts = self.buffer.batch(batch)
        self.shelf.put(result.manifest)
        self.pipeline.publish(result.manifest.version, now)
        self.trainer.settle()
        self.done = batch.step + 1
        self._let_go()
        self._on_step(self.meter.report(batch, rollouts, result, now))
        self._evaluations.consider(self.done, last=self.done == self.settings.batches)
        due = self.done == self.settings.batches or _due(self.done, self.settings.save_every)
        if due and self._save is not None:
            self.trainer.checkpoint(self._save, self.done)

    def _let_go(self) -> None:
        oldest = self.pipeline.oldest_needed if self._forced else self.shelf.newest.version
        self.trainer.release(self.shelf.let_go(oldest))

    # --- what may start ---------------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Start all that may start; return whether the run is over."""
        if self.done >= self.settings.batches and not self.trainer.busy and self._evaluations.idle:
            return True
        self._feed()
        over = self._advance_trainer()
        now = self._clock()
        for name, state in self.fleet.advance(self._evaluations, now).items():
            self.meter.enter(name, state, now)
        self.fleet.stop(self.pipeline.drain_aborts())
        return over and self._evaluations.idle

    def _advance_trainer(self) -> bool:
        if self.trainer.busy or self.done >= self.settings.batches:
            return False
        # A batch that is there is taken before new groups are opened against it.
        decision = self.pipeline.take()
        if isinstance(decision, Done):
            return True
        state = f"waits: {decision.reason}" if isinstance(decision, Wait) else "trains"
        self.meter.enter("trainer", state, self._clock())
        if isinstance(decision, Batch):
            probe = _due(decision.step, self.settings.probe_every)
            self.trainer.train(decision, self.buffer.batch(decision), probe)
        return False

    def _feed(self) -> None:
        wanted = self.settings.room + self.pipeline.config.batch_groups - self.pipeline.prompts_left
        if wanted > 0:
            self.pipeline.add_prompts(self.feed.next(wanted))
