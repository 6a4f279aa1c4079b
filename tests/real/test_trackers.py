"""Metrics reach TensorBoard and a tracker; what is missing is named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from entr_lab.errors import ConfigError
from entr_lab.real.config_io import load_config
from entr_lab.real.trackers import Trackers

OFF = "log.tensorboard=false"


def test_a_tracker_gets_configuration_numbers_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    fake = SimpleNamespace(
        init=lambda **options: calls.append(options),
        log=lambda metrics, step: calls.append((step, metrics)),
        finish=lambda: calls.append("end"),
    )
    monkeypatch.setitem(sys.modules, "trackio", fake)
    trackers = Trackers(load_config(None, [OFF, "log.tracker=trackio", "log.project=p"]), tmp_path)
    trackers.write(3, {"loss": 0.5})
    trackers.close()
    assert calls[0]["project"] == "p"
    assert calls[0]["config"]["trainer"]["batches"] == 160
    assert calls[1:] == [(3, {"loss": 0.5}), "end"]


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="'wandb', which is not installed; pip install wandb"):
        Trackers(load_config(None, [OFF, "log.tracker=wandb"]), tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs tensorboard")
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_files_are_written(tmp_path: Path) -> None:
    trackers = Trackers(load_config(), tmp_path)
    trackers.write(0, {"loss": 0.5})
    trackers.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in path.read_bytes()


def test_nothing_is_written_where_nothing_is_wanted(tmp_path: Path) -> None:
    trackers = Trackers(load_config(None, [OFF]), tmp_path)
    trackers.write(0, {"loss": 0.5})
    trackers.close()
    assert list(tmp_path.iterdir()) == []
