"""Kill -9 under `entr-lab train`, one process after another, and a full disk: nothing is lost, nothing stays behind.

All of it happens to one run, since every start takes half a minute: generator, engine core and trainer are killed in
the first process, the disk fills up in the second, the driver is killed in the third, a checkpoint has a flipped bit,
and the last process finishes. Each test looks at one part of what was seen.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psutil")
pytest.importorskip("safetensors")

from entr_lab.real.checkpoint import latest_checkpoint
from tests.real.event_logs import published
from tests.real.train_process import CORE, GENERATOR, TRAINER, TrainProcess, complete_groups

installed = all(importlib.util.find_spec(name) for name in ("ray", "vllm", "transformers"))
pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(not installed, reason="needs Ray and vLLM"),
    pytest.mark.timeout(1800),
]

SETTINGS = ("rollout.batch_groups=4", "rollout.group_size=4", "checkpoint.every=2", "log.tensorboard=false")
FAREWELL = 180.0
"""Seconds that the processes of a killed driver get: two agents of Ray's wait a minute for its server, dead too."""
AHEAD = 4 + 2 + 1
"""Batches that can still be trained on what was generated before: the bounds of the staleness, and the one in work."""
SMALL_DISK = 600 << 10
"""Bytes of the largest file that the full disk takes: less than the weights, more than any log of this run."""


@dataclass
class Ending:
    """How one process ended."""

    code: int
    sentence: str
    survivors: list[str]
    files: list[Path]


@dataclass
class Story:
    """What was seen."""

    folder: Path
    endings: dict[str, Ending] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    """Batches trained between a kill and the moment when its successor had done its part."""
    complete: list[set[int]] = field(default_factory=list)
    """Groups that were complete at the checkpoint of each resume."""
    summary: dict[str, Any] = field(default_factory=dict)
    done: int = 0
    """Batches at the last checkpoint before the last process."""


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    told = Story(tmp_path_factory.mktemp("killed") / "run")
    _kill_workers(told)
    _fill_the_disk(told)
    _kill_the_driver(told)
    _flip_a_bit(told)
    told.done = int(latest_checkpoint(told.folder / "checkpoints").name.removeprefix("step-"))
    _finish(told)
    return told


def _started(told: Story, *arguments: str) -> TrainProcess:
    if told.folder.exists():
        told.complete.append(complete_groups(told.folder))
        return TrainProcess(told.folder, "--resume", str(told.folder), *arguments)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return TrainProcess(told.folder, "--out", str(told.folder), *settings, *arguments)


def _ending(told: Story, name: str, run: TrainProcess) -> None:
    code = run.end()
    told.endings[name] = Ending(code, run.sentence, run.survivors(FAREWELL), run.files_left())


def _kill_workers(told: Story) -> None:
    run = _started(told, "--batches", "1000")
    try:
        run.until(lambda: run.saved >= 2, "first checkpoint")
        for title in (GENERATOR, CORE):
            before, dead = run.batches, run.kill(title)
            run.until(lambda title=title, dead=dead: run.pid(title) not in (None, dead), f"successor of {title}")
            run.until(lambda before=before: run.batches > before + AHEAD, f"batches after the death of {title}")
            told.after[title] = run.batches - before
        run.kill(TRAINER)
        _ending(told, TRAINER, run)
    finally:
        run.close()


def _fill_the_disk(told: Story) -> None:
    run = _started(told, "--batches", "1000")
    try:
        before = run.saved
        run.until(lambda: run.saved > before, "a checkpoint after the resume")
        resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (SMALL_DISK, SMALL_DISK))
        _ending(told, "disk", run)
    finally:
        run.close()


def _kill_the_driver(told: Story) -> None:
    run = _started(told, "--batches", "1000")
    try:
        before = run.saved
        run.until(lambda: run.saved > before, "a checkpoint after the full disk")
        run.until(lambda: run.batches > run.saved, "work after the checkpoint")
        run.look()
        os.kill(run.process.pid, signal.SIGKILL)
        _ending(told, "driver", run)
    finally:
        run.close()


def _flip_a_bit(told: Story) -> None:
    path = latest_checkpoint(told.folder / "checkpoints") / "weights.safetensors"
    whole = path.read_bytes()
    place = len(whole) // 2
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    run = TrainProcess(told.folder, "--resume", str(told.folder), "--batches", "1000")
    try:
        _ending(told, "bit", run)
    finally:
        run.close()
        path.write_bytes(whole)


def _finish(told: Story) -> None:
    run = _started(told, "--json", "--batches", str(told.done + AHEAD))
    try:
        _ending(told, "finished", run)
        assert run.process.returncode == 0, run.errors
        told.summary = json.loads(run.output)
    finally:
        run.close()


@pytest.mark.parametrize("title", [GENERATOR, CORE])
def test_a_killed_generator_or_engine_comes_back(story: Story, title: str) -> None:
    assert story.after[title] > AHEAD


def test_work_of_a_killed_generator_is_given_out_again(story: Story) -> None:
    assert story.summary["rollouts_lost"].get("worker-lost", 0) > 0, story.summary


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (TRAINER, "the trainer's process is gone"),
        ("disk", "File too large (os error 27)); earlier ones in"),
        ("bit", "weights.safetensors' is not what was written"),
    ],
)
def test_what_cannot_go_on_ends_with_one_sentence(story: Story, name: str, words: str) -> None:
    ending = story.endings[name]
    assert ending.code == 2
    assert ending.sentence.startswith("error: ")
    assert words in ending.sentence


def test_no_process_stays_behind(story: Story) -> None:
    assert {name: ending.survivors for name, ending in story.endings.items() if ending.survivors} == {}


def test_no_file_stays_behind_but_a_killed_drivers_until_the_next_run(story: Story) -> None:
    left = {name: ending.files for name, ending in story.endings.items()}
    orphans = left.pop("driver")
    assert not any(left.values()), left
    assert not [path for path in orphans if path.exists()]


def test_nothing_complete_is_lost_and_nothing_trained_twice(story: Story) -> None:
    batches, pipeline = published(story.folder)
    assert [batch.step for batch in batches] == list(range(story.summary["batches"]))
    assert len(batches) == story.done + AHEAD
    trained = Counter(group.id for batch in batches for group in batch.groups)
    assert set(trained.values()) == {1}
    prompts = Counter(group.prompt.id for batch in batches for group in batch.groups)
    assert set(prompts.values()) == {1}
    assert any(story.complete), "no group was waiting at a checkpoint; the test would show nothing"
    assert set().union(*story.complete) <= set(trained) | {group[0] for group in pipeline.snapshot()["ready"]}
    assert all(0 <= lag <= AHEAD - 1 for batch in batches for lag in batch.staleness())


def test_metrics_and_trace_have_every_batch_once(story: Story) -> None:
    from entr_lab.traces.writer import read_trace

    count = story.summary["batches"]
    lines = [json.loads(line) for line in (story.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(count))
    _, sequences = read_trace(story.folder / "trace")
    assert Counter(sequences["step"].to_pylist()) == dict.fromkeys(range(count), 16)
