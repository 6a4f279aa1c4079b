"""A run with fakes and real checkpoints, as a process that a test can kill: `saved_run.py FOLDER BATCHES`."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from entr_lab.real.config_io import load_config
from entr_lab.real.loop import Loop
from entr_lab.real.loop_settings import LoopSettings
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.run_folder import MetricsFile, new_run, open_run
from entr_lab.real.saving import RunSaver, begin, resume
from entr_lab.real.step_report import StepReport
from tests.real.loop_fakes import PaperGenerator, PaperTrainer, Stream, play

SETTINGS = ("rollout.batch_groups=3", "rollout.group_size=2", "asynchrony.max_inter=3", "checkpoint.every=4")


def train(folder: Path, batches: int, pace: float = 0.002, dies_at: int | None = None) -> Loop:
    """Begin or resume the run in `folder` and train it to `batches`."""
    if resumed := folder.exists():
        config = open_run(folder)
    else:
        config = load_config(None, SETTINGS)
        new_run(folder, config)
    state = resume(config, folder, time.monotonic()) if resumed else begin(config, folder)
    trainer = PaperTrainer(pace=20 * pace)
    trainer.dies_at = dies_at
    if state.trainer is not None:
        trainer.version = state.trainer.counters["version"]
        assert state.trainer.weights["w"].tolist() == [trainer.version] * 2
        assert state.pipeline.version == trainer.version
    feed = PromptFeed(Stream(), state.cursor)
    metrics = MetricsFile(folder / "metrics.jsonl", state.done)

    def on_step(report: StepReport) -> None:
        metrics.write(report.step, {"version": report.train.version, **report.metrics})

    loop = Loop(
        state.pipeline,
        state.buffer,
        trainer,
        {"g0": PaperGenerator(pace=pace), "g1": PaperGenerator(pace=pace, seed=1)},
        play,
        feed,
        LoopSettings(batches=batches, slots=6, max_tokens=12, save_every=config.checkpoint.every),
        done=state.done,
        on_step=on_step,
        save=RunSaver(folder, state, trainer, feed, config),
    )
    try:
        asyncio.run(loop.run())
    finally:
        metrics.close()
        state.events.sync()
        state.events.close()
    state.pipeline.audit()
    return loop


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
