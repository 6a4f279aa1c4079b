"""Tokens per second of the generator inside the loop, over those of the same engine alone. The goal is 85 %.

    python bench/real/loop_throughput.py [--batches 150] [--seconds 30] [--seed 0]

Everything of a run is there: Ray, the pipeline, weight updates in flight with their proofs, metrics, the event log and
traces. Only the trainer is made cheap, so that it is not the bottleneck: it trains on the first group of each batch and
publishes; the other groups get rows of NaN in the trace, as many as they have tokens. The engine alone plays the same
environment in the same process on the same thread, before and after, with the same number of rollouts in flight and
without updates, pipeline or Ray calls. Four minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from setup_engine import timed
from train_runs import columns, share_seconds, write_result

from entr_lab.real import actors, remote_generator
from entr_lab.real.cluster import Cluster
from entr_lab.real.config_io import load_config
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
    """A trainer that learns from the first group of each batch."""

    def __init__(self, trainer: RemoteTrainer) -> None:
        self._trainer = trainer
        self.publish, self.release, self.state = trainer.publish, trainer.release, trainer.state

    async def step(self, groups: Sequence[Sequence[Any]], target_version: int, probe: bool) -> StepResult:
        """Train on one group and publish."""
        result = await self._trainer.step(groups[:1], target_version, probe)
        others = [rollout for group in groups[1:] for rollout in group]
        train = dataclasses.replace(
            result.train,
            advantage=np.concatenate([result.train.advantage, np.zeros(len(others), np.float32)]),
            logp_pi=[*result.train.logp_pi, *(np.full(len(r.token_ids), np.nan, np.float32) for r in others)],
            keep=[*result.train.keep, *(np.zeros(len(r.token_ids), np.bool_) for r in others)],
        )
        return dataclasses.replace(result, train=train)


async def measure(config: Any, folder: Path, seconds: float) -> dict[str, Any]:
    """Return tokens per second alone, in the loop and alone again."""
    model, facts = prepare_model(config)
    play, samples = make_play(config, load_codec(model, facts.vocabulary))
    trainer = spawn_trainer(config, model, facts.vocabulary)
    (generator,) = remote_generator.spawn_generators(engine_settings(config, model, facts, 0))
    await asyncio.gather(trainer.ready(), generator.ready())
    manifest = await trainer.publish()
    await generator.update_weights(manifest, True)
    await trainer.release(manifest)

    async def alone(duration: float) -> float:
        return float(await generator.handle.alone.remote(config, model, facts.vocabulary, duration))

    await alone(5.0)  # warms up
    before = await alone(seconds)
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
        CheapTrainer(trainer),
        {"generator-0": generator},
        play,
        PromptFeed(samples, 0),
        settings,
        on_step=records.step,
    )
    await loop.run()
    updates = await generator.handle.update_seconds.remote()
    after = await alone(seconds)
    records.close()
    state.events.close()
    await asyncio.gather(trainer.shutdown(), generator.shutdown(), return_exceptions=True)
    metrics = columns(folder / "metrics.jsonl")
    spans = np.diff(metrics["seconds"])[WARM_UP - 1 :]
    generated = metrics["rollout_tokens_per_second"][WARM_UP:] * spans
    share = {state: share_seconds(metrics, "generator-0", state) for state in ("generates", "loads")}
    trains = share_seconds(metrics, "trainer", "trains")
    return {
        "alone_before": before,
        "in_the_loop": float(generated.sum() / spans.sum()),
        "alone_after": after,
        "updates": len(metrics["step"]),
        "seconds_per_batch": float(spans.mean()),
        "generator_seconds_per_batch": share,
        "seconds_per_update": updates,
        "trainer_seconds_per_batch": trains,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement of the engine alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="a setting, as of `entr-lab train`")
    options = parser.parse_args()
    config = load_config(
        None, [f"trainer.batches={options.batches}", f"seed={options.seed}", "log.tensorboard=false", *options.set]
    )
    remote_generator.GeneratorActor = MeasuredGenerator  # type: ignore[misc]  # what `spawn_generators` starts
    with tempfile.TemporaryDirectory() as root, Cluster(cpus=2):
        folder = Path(root) / "run"
        new_run(folder, config)
        found = asyncio.run(measure(config, folder, options.seconds))
    before, inside, after = (found[name] for name in ("alone_before", "in_the_loop", "alone_after"))
    print(f"tokens per second: alone {before:.0f} and {after:.0f}, in the loop {inside:.0f}")
    ratio = 2 * inside / (before + after)
    print(f"in the loop: {ratio:.1%} of the engine alone (goal 85 %), {found['seconds_per_batch']:.2f} s a batch")
    took = found["seconds_per_update"]
    print(f"an update: {took['update']:.3f} s, of which generation stood still {took['stopped']:.3f} s")
    print(write_result(__file__, {"batches": options.batches, **found, "ratio": ratio, "goal": 0.85}, options.seed))


if __name__ == "__main__":
    main()
