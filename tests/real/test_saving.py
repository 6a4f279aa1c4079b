"""Killing a run and going on: nothing complete is lost, nothing is trained twice, and the event log proves it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from entr_lab.errors import ConfigError, DataError, EngineError
from entr_lab.real import checkpoint
from entr_lab.real.checkpoint import latest_checkpoint, load_checkpoint
from entr_lab.real.config_io import load_config
from entr_lab.real.run_folder import open_run
from entr_lab.real.saving import resume

pytest.importorskip("safetensors")

from .event_logs import published
from .saved_run import train

ROOT = Path(__file__).parents[2]


def killed_run(folder: Path, batches: int, after: int) -> None:
    """Start a run as a process and kill it by SIGKILL once the checkpoint of batch `after` is there."""
    command = [sys.executable, "-m", "tests.real.saved_run", str(folder), str(batches)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    wanted = folder / "checkpoints" / f"step-{after:08d}" / "manifest.json"
    try:
        deadline = time.monotonic() + 120
        while not wanted.exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.03)  # well into the work after the checkpoint
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_kill_and_resume_twice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed_run(folder, 1000, after=4)
    saved = load_checkpoint(latest_checkpoint(folder / "checkpoints"))
    complete = [group[0] for group in saved.state["pipeline"]["ready"]]
    assert complete, "no group was waiting at the checkpoint; the test would show nothing"
    killed_run(folder, 1000, after=saved.step + 4)
    train(folder, load_checkpoint(latest_checkpoint(folder / "checkpoints")).step + 3)

    batches = published(folder)[0]
    assert [batch.step for batch in batches] == list(range(len(batches)))
    trained = Counter(group.id for batch in batches for group in batch.groups)
    assert set(trained.values()) == {1}
    assert set(complete) <= set(trained)
    prompts = [group.prompt.id for batch in batches for group in batch.groups]
    assert len(prompts) == len(set(prompts)) == 3 * len(batches)
    assert all(0 <= lag <= 3 + 2 for batch in batches for lag in batch.staleness())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(len(batches)))


def test_a_dead_trainer_ends_the_run_which_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(EngineError, match="process is gone; resume from the last checkpoint"):
        train(folder, 12, pace=0.0, dies_at=6)
    second = train(folder, 12, pace=0.0)
    assert [target for target, _ in second.trainer.trainer.seen] == list(range(4, 12))
    trained = [group.id for batch in published(folder)[0] for group in batch.groups]
    assert len(trained) == len(set(trained)) == 36


def test_a_full_disk_ends_the_run_and_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    train(folder, 4, pace=0.0)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write", full)
    with pytest.raises(EngineError, match=r"step-00000008 was not written \(No space left on device\)"):
        train(folder, 12, pace=0.0)
    monkeypatch.undo()
    assert train(folder, 12, pace=0.0).done == 12
    trained = [group.id for batch in published(folder)[0] for group in batch.groups]
    assert len(trained) == len(set(trained)) == 36


def test_a_finished_run_goes_on_with_more_batches(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = train(folder, 5, pace=0.0)
    waiting = {ticket for members in first.buffer._groups.values() for ticket in members}
    second = train(folder, 9, pace=0.0)
    assert (first.done, second.done) == (5, 9)
    assert len(second.trainer.trainer.seen) == 4
    used = {t.ticket for batch in published(folder)[0][5:] for group in batch.groups for t in group.done}
    assert waiting & used


def test_what_cannot_be_resumed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        open_run(tmp_path)
    folder = tmp_path / "run"
    train(folder, 4, pace=0.0)
    config = open_run(folder)
    other = config.model_copy(update={"rollout": config.rollout.model_copy(update={"group_size": 4})})
    with pytest.raises(ConfigError, match="cannot change in a resume"):
        resume(other, folder, 0.0)
    done = config.model_copy(update={"trainer": config.trainer.model_copy(update={"batches": 4})})
    with pytest.raises(ConfigError, match=r"has trained 4 batches, and trainer.batches is 4; give --batches above 4"):
        resume(done, folder, 0.0)
    with pytest.raises(ConfigError, match="mode exact cannot be resumed"):
        resume(load_config(None, ["asynchrony.mode=exact"]), folder, 0.0)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("learning_rate = 0.0003", "learning_rate = 0.1"))
    with pytest.raises(ConfigError, match=r"trainer.learning_rate cannot change in a resume: it was 0.0003 and is 0.1"):
        resume(open_run(folder), folder, 0.0)
    (folder / "config.toml").write_text(text[: text.index("[rollout]")])  # cut off
    with pytest.raises(ConfigError, match="cannot change in a resume"):
        resume(open_run(folder), folder, 0.0)
    (folder / "events.jsonl").write_bytes(b"")
    with pytest.raises(DataError, match="has 0 bytes, but the checkpoint was made at"):
        resume(config, folder, 0.0)


def test_where_things_are_written_may_change_in_a_resume(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, 4, pace=0.0)
    config = open_run(folder)
    moved = {"log": config.log.model_copy(update={"tensorboard": False}), "trainer": config.trainer}
    moved["trainer"] = config.trainer.model_copy(update={"batches": 99})
    state = resume(config.model_copy(update=moved), folder, 0.0)
    state.events.close()
    assert state.done == 4


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, 4, pace=0.0)
    path = latest_checkpoint(folder / "checkpoints") / "rollouts.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"rollouts\.safetensors"):
        resume(open_run(folder), folder, 0.0)
