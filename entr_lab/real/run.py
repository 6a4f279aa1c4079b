"""One real run from configuration to the last checkpoint: processes up, checks, loop, processes down. Ours."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from entr_lab.pipeline import Mode
from entr_lab.real.cluster import Cluster
from entr_lab.real.config import RunConfig
from entr_lab.real.engine_cpu import off_engine_cpus
from entr_lab.real.environments.datasets import SampleStream
from entr_lab.real.environments.vocabulary import load_codec
from entr_lab.real.evaluation import Evaluations
from entr_lab.real.loop import Loop
from entr_lab.real.loop_settings import LoopSettings
from entr_lab.real.parts import (
    ModelFacts,
    check_room,
    engine_settings,
    find_model,
    make_evaluations,
    make_play,
    read_facts,
)
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.remote_generator import RemoteGenerator, spawn_generators
from entr_lab.real.run_folder import keep_config, open_run
from entr_lab.real.run_records import Observers, RunRecords
from entr_lab.real.saving import RunSaver, RunState, begin, resume
from entr_lab.real.self_check import CHECK_SAMPLING
from entr_lab.real.signals import run_until_terminated, termination_as_interrupt
from entr_lab.real.station import Play
from entr_lab.real.trainer_actor import RemoteTrainer, spawn_trainer

__all__ = ["prepare_model", "run"]

_CHECKED_PROMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is read before anything starts, so that what does not fit is refused before anything starts."""

    model: str
    facts: ModelFacts
    play: Play
    samples: SampleStream
    evaluations: Evaluations


def prepare_model(config: RunConfig, progress: Callable[[int, int], None] | None = None) -> tuple[str, ModelFacts]:
    """Return the model's folder or name and what its configuration says; builds the tiny model if need be.

    Raises:
        ConfigError: the model cannot be read, or has no room for the rollouts.
    """
    model = find_model(config, progress)
    facts = read_facts(model, trust_remote_code=config.model.trust_remote_code)
    check_room(config, facts)
    return model, facts


def run(
    config: RunConfig, folder: Path, observers: Observers | None = None, *, resumed: bool = False
) -> dict[str, Any]:
    """Train, and return the summary of the run.

    Args:
        config: of the run.
        folder: that `new_run` made, or that holds the run to resume.
        observers: who is told what.
        resumed: go on from the last checkpoint.

    Raises:
        EntrLabError: something failed that the run cannot go on without; the message is one sentence.
    """
    observers = observers or Observers()
    began = time.monotonic()
    state = resume(config, folder, began) if resumed else begin(config, folder)
    try:
        if resumed and open_run(folder) != config:
            keep_config(folder, config)
        model, facts = prepare_model(config, observers.model)
        codec = load_codec(model, facts.vocabulary, trust_remote_code=config.model.trust_remote_code)
        parts = _Parts(model, facts, *make_play(config, codec), make_evaluations(config, codec))
        if observers.trace is not None and config.log.traces:
            write = observers.trace(config, folder / "trace", model, facts.vocabulary)
            observers = replace(observers, step=[*observers.step, write])
        engines = config.rollout.generators
        observers.say("starting Ray")
        cpus = engines + config.trainer.processes
        with termination_as_interrupt(), Cluster(config.cluster.ray_address, cpus=cpus):
            return run_until_terminated(_train(config, folder, observers, state, parts, began))
    finally:
        state.events.close()


async def _train(
    config: RunConfig,
    folder: Path,
    observers: Observers,
    state: RunState,
    parts: _Parts,
    began: float,
) -> dict[str, Any]:
    records = RunRecords(config, folder, state.done, observers)
    trainer = spawn_trainer(config, parts.model, parts.facts.vocabulary)
    generators = _spawn(config, parts.model, parts.facts)
    try:
        observers.say(f"starting the trainer and {len(generators)} engine(s) on {parts.model}")
        await asyncio.gather(trainer.ready(state.trainer), *(generator.ready() for generator in generators.values()))
        observers.say("checking weight transfer and the engines' record of their sampling")
        for generator in generators.values():
            await _rehearse(trainer, generator)
        feed = PromptFeed(parts.samples, state.cursor)
        loop = Loop(
            state.pipeline,
            state.buffer,
            trainer,
            generators,
            parts.play,
            feed,
            _settings(config),
            done=state.done,
            on_step=records.step,
            save=RunSaver(folder, state, trainer, feed, config),
            evaluations=replace(parts.evaluations, tell=records.evaluation),
        )
        observers.say(f"training from batch {state.done}; {time.monotonic() - began:.1f} s after the start")
        with off_engine_cpus() if config.rollout.own_cpu else contextlib.nullcontext():
            await loop.run()
        return _summary(loop, folder)
    finally:
        # Processes first: a full disk must not leave them behind.
        stops = [trainer.shutdown(), *(generator.shutdown() for generator in generators.values())]
        await asyncio.gather(*stops, return_exceptions=True)
        records.close()
        state.events.sync()


def _spawn(config: RunConfig, model: str, facts: ModelFacts) -> dict[str, RemoteGenerator]:
    generators = {}
    for place in range(config.rollout.generators):
        name = f"generator-{place}"
        (generators[name],) = spawn_generators(engine_settings(config, model, facts, place))
        generators[name].name = name
    return generators


async def _rehearse(trainer: RemoteTrainer, generator: RemoteGenerator) -> None:
    """Send weights that differ everywhere and prove them, then the true ones, then check the behaviour record."""
    for publish in (trainer.publish_perturbed, trainer.publish):
        manifest = await publish()
        await generator.update_weights(manifest, clear_cache=True)
        await trainer.release(manifest)
    assert manifest.canary is not None
    prompts = manifest.canary.prompts[:_CHECKED_PROMPTS]
    answers = await asyncio.gather(*(generator.generate(prompt, CHECK_SAMPLING) for prompt in prompts))
    await trainer.check(list(zip(prompts, answers, strict=True)), CHECK_SAMPLING, generator.settings)


def _settings(config: RunConfig) -> LoopSettings:
    return LoopSettings(
        batches=config.trainer.batches,
        slots=config.rollout.max_sequences,
        queued=0 if config.asynchrony.mode is Mode.EXACT else config.rollout.queued,
        max_tokens=config.rollout.max_tokens,
        clear_cache=not config.rollout.keep_kv_cache,
        probe_every=config.attribution.every,
        save_every=config.checkpoint.every,
    )


def _summary(loop: Loop, folder: Path) -> dict[str, Any]:
    counts = loop.pipeline.counts
    return {
        "folder": str(folder),
        "batches": loop.done,
        "version": loop.pipeline.version,
        "groups_trained": counts.trained,
        "groups_dropped": dict(counts.dropped),
        "rollouts_lost": dict(counts.lost),
        "rollouts_waiting": len(loop.buffer),
        **loop.meter.totals(),
    }
