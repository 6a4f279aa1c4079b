"""Files of a run: begun once, cut back to a checkpoint, and one sentence for a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from entr_lab.errors import ConfigError, DataError, EngineError
from entr_lab.pipeline import Event, read_log
from entr_lab.real.config import RunConfig
from entr_lab.real.config_io import load_config
from entr_lab.real.run_folder import EventFile, MetricsFile, keep_config, new_run, open_run

START = Event(0, "start", {"schema": 1, "config": {}})


def test_the_configuration_comes_back(tmp_path: Path) -> None:
    config = load_config(None, ["trainer.batches=7", "method.name=entr-outward"])
    new_run(tmp_path / "run", config)
    assert open_run(tmp_path / "run") == config


def test_a_run_is_never_begun_over_another(tmp_path: Path) -> None:
    new_run(tmp_path, RunConfig())
    with pytest.raises(ConfigError, match="holds a run already; resume it"):
        new_run(tmp_path, RunConfig())
    with pytest.raises(ConfigError, match="holds no run"):
        open_run(tmp_path / "other")


def test_the_configuration_follows_a_resume(tmp_path: Path) -> None:
    new_run(tmp_path, load_config(None, ["trainer.batches=7"]))
    keep_config(tmp_path, load_config(None, ["trainer.batches=9"]))
    assert open_run(tmp_path).trainer.batches == 9
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        new_run(tmp_path / "file" / "run", RunConfig())


def test_the_log_is_cut_back_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    file = EventFile(path)
    file.write(START)
    length = file.sync()
    assert length == path.stat().st_size
    file.write(Event(1, "exhaust", {}))
    file.close()

    file = EventFile(path, length)
    file.write(Event(1, "recover", {"now": 0.0}))
    file.close()
    log = read_log(path.read_bytes())
    assert [event.kind for event in log.events] == ["start", "recover"]
    assert log.unread == 0


def test_a_log_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 0 bytes, but the checkpoint was made at 5"):
        EventFile(tmp_path / "events.jsonl", 5)


def test_metrics_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path)
    for step in range(4):
        file.write(step, {"version": step + 1, "loss": float("nan") if step == 1 else 0.5})
    file.close()
    path.write_bytes(path.read_bytes() + b'{"step": 4, "ver')  # killed in the middle of a line

    file = MetricsFile(path, before=2)
    file.write(2, {"version": 3, "loss": 1.0})
    file.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], line["version"], line["loss"]) for line in lines] == [(0, 1, 0.5), (1, 2, None), (2, 3, 1.0)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    file = MetricsFile(tmp_path / "metrics.jsonl")
    with pytest.raises(EngineError, match=r"cannot write .*metrics\.jsonl.*free space and resume"):
        file.write(0, {"loss": 0.5})
    with pytest.raises(OSError, match="No space"):
        file.close()


@pytest.mark.parametrize("line", [b"garbage\n", b"3\n", b"{}\n"])
def test_a_line_that_no_run_has_written_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 0}\n' + line)
    with pytest.raises(DataError, match=r"line 2 of .* is not one that a run has written"):
        MetricsFile(path, 5)
    assert path.read_bytes().endswith(line)
