"""Saving a run while it goes on, and taking it up again: trainer, pipeline, rollouts, data cursor, event log. Ours."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from entr_lab.errors import ConfigError, DataError
from entr_lab.pipeline import Mode, Pipeline
from entr_lab.real.checkpoint import Checkpoint, latest_checkpoint, load_checkpoint, save_checkpoint
from entr_lab.real.config import RunConfig
from entr_lab.real.ports import TrainerPort, TrainerState
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.rollout_buffer import RolloutBuffer
from entr_lab.real.run_folder import EventFile

__all__ = ["RunSaver", "RunState", "begin", "resume"]

_FREE: Final = {"checkpoint", "cluster", "log"}
"""Sections that may change in a resume: they say where and what is written, not what is learnt."""


@dataclass(frozen=True, slots=True)
class RunState:
    """The parts of a run that a checkpoint keeps, ready for a `Loop`.

    Args:
        pipeline: logs into `events`.
        buffer: rollouts that wait for training.
        events: the log on disk.
        cursor: the next sample.
        done: batches trained before.
        trainer: state that the trainer goes on from; None at the beginning.
    """

    pipeline: Pipeline
    buffer: RolloutBuffer
    events: EventFile
    cursor: int = 0
    done: int = 0
    trainer: TrainerState | None = None


def begin(config: RunConfig, folder: Path) -> RunState:
    """Return the state of a new run."""
    buffer, events = RolloutBuffer(), EventFile(folder / "events.jsonl")
    return RunState(Pipeline(config.pipeline, closed=buffer.closed, log=events.write), buffer, events)


def resume(config: RunConfig, folder: Path, now: float) -> RunState:
    """Return the state of a run at its last checkpoint, with what was running then to be started again.

    Raises:
        DataError: there is no checkpoint, it is damaged, or it does not belong to the event log.
        ConfigError: the settings are others than those of the run, nothing is left to train, or the mode cannot be
            resumed.
    """
    if config.asynchrony.mode is Mode.EXACT:
        raise ConfigError("mode exact cannot be resumed: the stored weights of past versions are gone; start again.")
    checkpoint = load_checkpoint(latest_checkpoint(folder / "checkpoints"))
    if checkpoint.step >= config.trainer.batches:
        raise ConfigError(
            f"{str(folder)!r} has trained {checkpoint.step} batches, and trainer.batches is {config.trainer.batches}; "
            f"give --batches above {checkpoint.step}, which counts those before too."
        )
    state = checkpoint.state
    try:
        names = ("config", "pipeline", "rollouts", "events", "cursor")
        before, snapshot, places, length, cursor = (state[name] for name in names)
        trainer = TrainerState(checkpoint.weights, checkpoint.optimizer, state["trainer"], state["random"])
    except KeyError as error:
        raise DataError(f"the checkpoint of {str(folder)!r} lacks {error}; it was not written by a run.") from None
    _check_same(before, config)
    buffer = RolloutBuffer.restore(checkpoint.rollouts, places)
    pipeline = Pipeline.restore(snapshot, closed=buffer.closed)
    events = EventFile(folder / "events.jsonl", length)
    pipeline.attach_log(events.write)
    pipeline.recover(now)
    return RunState(pipeline, buffer, events, cursor, checkpoint.step, trainer)


def _check_same(before: dict[str, Any], config: RunConfig) -> None:
    """Refuse settings that are not those of the run, as after a config.toml that was edited or cut off."""
    now = _settled(config.model_dump(mode="json"))
    for name, value in sorted(_settled(before).items()):
        if now.get(name) != value:
            raise ConfigError(
                f"{name} cannot change in a resume: it was {value!r} and is {now.get(name)!r} by now; set it back in "
                f"config.toml, or start a new run."
            )


def _settled(sections: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that a resume keeps, by their full names."""
    found: dict[str, Any] = {}
    for name in sections.keys() - _FREE:
        section = sections[name]
        found |= {f"{name}.{key}": v for key, v in section.items()} if isinstance(section, dict) else {name: section}
    found.pop("trainer.batches", None)
    return found


class RunSaver:
    """Writes checkpoints; a `Saver` of the loop.

    Args:
        folder: of the run.
        state: whose pipeline, buffer and log are saved.
        trainer: at rest while this is called.
        feed: data cursor.
        config: of the run.
    """

    def __init__(
        self, folder: Path, state: RunState, trainer: TrainerPort, feed: PromptFeed, config: RunConfig
    ) -> None:
        self._root, self._state, self._trainer = folder / "checkpoints", state, trainer
        self._feed, self._config = feed, config

    async def __call__(self, done: int) -> None:
        """Write the checkpoint after batch `done`.

        Raises:
            EngineError: the disk is full; the checkpoints before are untouched.
        """
        trained = await self._trainer.state()
        checkpoint = self._collect(done, trained)
        await asyncio.to_thread(save_checkpoint, self._root, checkpoint, self._config.checkpoint.keep)

    def _collect(self, done: int, trained: TrainerState) -> Checkpoint:
        # No await in here: snapshot, rollouts, cursor and the log's length are of one moment.
        rollouts, places = self._state.buffer.store()
        content: dict[str, Any] = {
            "config": self._config.model_dump(mode="json"),
            "pipeline": self._state.pipeline.snapshot(),
            "rollouts": places,
            "events": self._state.events.sync(),
            "cursor": self._feed.cursor,
            "trainer": trained.counters,
            "random": trained.random,
        }
        return Checkpoint(done, trained.weights, trained.optimizer, rollouts, content)
