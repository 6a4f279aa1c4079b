"""Tokens per second of the generator inside the loop, over those of the same engine alone. The goal is 85 %.

    python bench/real/loop_throughput.py [--windows 8] [--batches 50] [--seconds 8] [--seed 0]

Everything of a run is there: Ray, the pipeline, weight updates in flight with their proofs, metrics, the event log and
traces. Only the trainer is made cheap, so that it is not the bottleneck: it trains on the first group of each batch and
publishes; the other groups get rows of NaN in the trace, as many as they have tokens. The engine alone plays the same
environment in the same process on the same thread, with as many rollouts in the engine and without updates, pipeline or
Ray calls. The speed of a machine may drift by a quarter within minutes, so both are measured in turn, in one run: after
every window the trainer holds back its step until the generator has run dry, and the engine plays alone. A window's
ratio is to the mean of the two measurements around it. Seven minutes; with five windows, four.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from setup_engine import timed
from train_runs import columns, write_result

from entr_lab.real import actors, remote_generator
from entr_lab.real.cluster import Cluster
from entr_lab.real.config_io import load_config
from entr_lab.real.engine_cpu import off_engine_cpus
from entr_lab.real.environments.vocabulary import load_codec
from entr_lab.real.loop import Loop
from entr_lab.real.loop_settings import LoopSettings
from entr_lab.real.parts import engine_settings, make_play
from entr_lab.real.ports import StepResult
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.run import prepare_model
from entr_lab.real.run_folder import new_run
from entr_lab.real.run_records import Observers, RunRecords
from entr_lab.real.saving import begin
from entr_lab.real.trainer_actor import RemoteTrainer, spawn_trainer
from entr_lab.report.intervals import mean_interval
from entr_lab.traces.recording import trace_observer

WARM_UP = 10
"""Batches that are left out at the beginning of the loop."""


class MeasuredGenerator(actors.GeneratorActor):
    """The generator's actor, which can also play by itself, and knows how long updates take."""

    async def ready(self) -> int:
        """Start the engine, and measure every update from now on."""
        pid = await super().ready()
        self.log: dict[str, list[float]] = {}
        updates, generator = self._generator.updates, self._generator
        updates.exchange = timed(self.log, "stopped", updates.exchange)
        generator.update_weights = timed(self.log, "update", generator.update_weights)
        return pid

    async def update_seconds(self) -> dict[str, float]:
        """Return the mean seconds of an update with check and proof, and those in which generation stood still."""
        return {name: float(np.mean(found[WARM_UP:])) / 1e3 for name, found in self.log.items()}

    async def alone(self, config: Any, model: str, vocabulary: int, seconds: float) -> float:
        """Keep the engine full of rollouts of the configuration's environment; return sampled tokens per second."""
        play, _ = make_play(config, load_codec(model, vocabulary))
        numbers, tokens, end = itertools.count(10**6), 0, time.perf_counter() + seconds

        async def slot() -> None:
            nonlocal tokens
            while time.perf_counter() < end:
                # A group's rollouts share a prompt in the loop too.
                number = next(numbers)
                rollout = await play(self._generator, number // config.rollout.group_size, f"a{number}")
                tokens += int(rollout.trainable.sum())

        start = time.perf_counter()
        await asyncio.gather(*(slot() for _ in range(config.rollout.max_sequences)))
        return tokens / (time.perf_counter() - start)


class CheapTrainer:
    """A trainer that learns from the first group of each batch, and pauses before every `window`th batch."""

    def __init__(self, trainer: RemoteTrainer, window: int, pause: Callable[[], Awaitable[None]]) -> None:
        self._trainer, self._window, self._pause = trainer, window, pause
        self.publish, self.release, self.state = trainer.publish, trainer.release, trainer.state

    async def step(self, groups: Sequence[Sequence[Any]], target_version: int, probe: bool) -> StepResult:
        """Train on one group and publish."""
        if target_version and target_version % self._window == 0:
            await self._pause()
        result = await self._trainer.step(groups[:1], target_version, probe)
        others = [rollout for group in groups[1:] for rollout in group]
        train = dataclasses.replace(
            result.train,
            advantage=np.concatenate([result.train.advantage, np.zeros(len(others), np.float32)]),
            logp_pi=[*result.train.logp_pi, *(np.full(len(r.token_ids), np.nan, np.float32) for r in others)],
            keep=[*result.train.keep, *(np.zeros(len(r.token_ids), np.bool_) for r in others)],
        )
        return dataclasses.replace(result, train=train)


async def run_dry(generator: remote_generator.RemoteGenerator) -> None:
    """Wait until nothing has been in flight for a while: the pipeline opens no group that would become too stale."""
    quiet = 0
    while quiet < 5:
        await asyncio.sleep(0.1)
        quiet = 0 if (await generator.health())["in_flight"] else quiet + 1


async def measure(config: Any, folder: Path, windows: int, seconds: float) -> dict[str, Any]:
    """Return tokens per second alone and in the loop, in turn."""
    model, facts = prepare_model(config)
    play, samples = make_play(config, load_codec(model, facts.vocabulary))
    trainer = spawn_trainer(config, model, facts.vocabulary)
    (generator,) = remote_generator.spawn_generators(engine_settings(config, model, facts, 0))
    await asyncio.gather(trainer.ready(), generator.ready())
    manifest = await trainer.publish()
    await generator.update_weights(manifest, True)
    await trainer.release(manifest)

    window, alone = config.trainer.batches // windows, list[float]()

    async def play_alone(duration: float = seconds) -> None:
        await run_dry(generator)
        alone.append(float(await generator.handle.alone.remote(config, model, facts.vocabulary, duration)))

    await play_alone(5.0)  # warms up
    alone.clear()
    await play_alone()
    state = begin(config, folder)
    records = RunRecords(
        config, folder, 0, Observers(step=[trace_observer(config, folder / "trace", model, facts.vocabulary)])
    )
    settings = LoopSettings(
        batches=config.trainer.batches,
        slots=config.rollout.max_sequences,
        queued=config.rollout.queued,
        max_tokens=config.rollout.max_tokens,
    )
    loop = Loop(
        state.pipeline,
        state.buffer,
        CheapTrainer(trainer, window, play_alone),
        {"generator-0": generator},
        play,
        PromptFeed(samples, 0),
        settings,
        on_step=records.step,
    )
    with off_engine_cpus() if config.rollout.own_cpu else contextlib.nullcontext():
        await loop.run()
    updates = await generator.handle.update_seconds.remote()
    await play_alone()
    records.close()
    state.events.close()
    await asyncio.gather(trainer.shutdown(), generator.shutdown(), return_exceptions=True)
    metrics = columns(folder / "metrics.jsonl")
    spans = np.diff(metrics["seconds"], prepend=0.0)
    generated = metrics["rollout_tokens_per_second"] * spans
    measured = np.arange(len(spans)).reshape(windows, window)[:, WARM_UP:]
    inside = generated[measured].sum(1) / spans[measured].sum(1)
    around = (np.array(alone[:-1]) + alone[1:]) / 2
    return {
        "alone": alone,
        "in_the_loop": inside.tolist(),
        "ratios": (inside / around).tolist(),
        "seconds_per_batch": float(spans[measured].mean()),
        "seconds_per_update": updates,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--batches", type=int, default=50, help=f"of each window; the first {WARM_UP} are left out")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement of the engine alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="a setting, as of `entr-lab train`")
    options = parser.parse_args()
    batches = f"trainer.batches={options.windows * options.batches}"
    config = load_config(None, [batches, f"seed={options.seed}", "log.tensorboard=false", *options.set])
    remote_generator.GeneratorActor = MeasuredGenerator  # type: ignore[misc]  # what `spawn_generators` starts
    with tempfile.TemporaryDirectory() as root, Cluster(cpus=2):
        folder = Path(root) / "run"
        new_run(folder, config)
        found = asyncio.run(measure(config, folder, options.windows, options.seconds))
    ratios, took = np.array(found["ratios"]), found["seconds_per_update"]
    mean = mean_interval(ratios)
    for name in ("alone", "in_the_loop"):
        print(f"tokens per second, {name.replace('_', ' ')}: {' '.join(f'{rate:.0f}' for rate in found[name])}")
    print(f"ratios: {' '.join(f'{ratio:.3f}' for ratio in ratios)}")
    print(f"in the loop: {mean.mean:.1%} ± {mean.half:.1%} of the engine alone (95 %; goal 85 %)")
    print(f"a batch: {found['seconds_per_batch']:.2f} s")
    print(f"an update: {took['update']:.3f} s, of which generation stood still {took['stopped']:.3f} s")
    result = {"windows": options.windows, "batches": options.batches, "settings": options.set, **found}
    result |= {"ratio": mean.mean, "half_width_95": mean.half, "goal": 0.85}
    print(write_result(str(Path(__file__).with_stem(f"loop_throughput-{options.seed}")), result, options.seed))


if __name__ == "__main__":
    main()
