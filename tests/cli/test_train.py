"""`entr-lab train`: what it plans, what it refuses in one sentence, and one real run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from entr_lab.cli import train as command
from entr_lab.cli.train import train
from entr_lab.errors import ConfigError, EntrLabError, UnknownNameError
from entr_lab.real.config_io import load_config
from entr_lab.real.environments.vocabulary import save_tokenizer
from entr_lab.real.run_folder import new_run

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(train)

installed = all(importlib.util.find_spec(name) for name in ("ray", "vllm", "transformers", "safetensors", "psutil"))


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def refused(*arguments: str, kind: type[EntrLabError] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        invoke(*arguments)
    return str(caught.value)


def test_a_dry_run_prints_a_configuration_that_loads_and_every_process(tmp_path: Path) -> None:
    output = invoke("--dry-run", "--set", "rollout.generators=2", "--method", "entr-outward", "--batches", "9").output
    toml, table = output.split("What each process will hold")
    path = tmp_path / "c.toml"
    path.write_text(toml)
    config = load_config(path)
    assert (config.rollout.generators, config.method.name, config.trainer.batches) == (2, "entr-outward", 9)
    assert all(word in table for word in ("driver", "trainer", "generator", "shared memory", "64 MiB"))


def test_a_dry_run_as_json(tmp_path: Path) -> None:
    found = json.loads(invoke("--dry-run", "--json", "--seed", "5").output)
    assert found["config"]["seed"] == 5
    assert [row["name"] for row in found["processes"]] == ["driver", "trainer", "generator", "shared memory"]


def test_options_beat_the_file_and_settings_beat_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("seed = 3\n[trainer]\nbatches = 4\nlearning_rate = 1e-3\n")
    found = json.loads(invoke(str(path), "--dry-run", "--json", "--batches", "6").output)["config"]
    assert (found["seed"], found["trainer"]["batches"], found["trainer"]["learning_rate"]) == (3, 6, 1e-3)


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    assert "did you mean" in refused("--dry-run", "--set", "trainer.batchs=3", kind=UnknownNameError)
    assert "evaluation.path" in refused("--set", "evaluation.every=2", "--set", "data.path='x.jsonl'")
    assert "holds no run" in refused("--resume", str(tmp_path))
    assert "only --batches goes with it" in refused("--resume", str(tmp_path), "--method", "entr")
    assert "only --batches goes with it" in refused("--resume", str(tmp_path), "--set", "seed=1")


def test_a_folder_with_a_run_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_check_installed", lambda: None)
    new_run(tmp_path, load_config())
    assert "holds a run already" in refused("--out", str(tmp_path))


def test_a_tokenizer_of_another_model_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"vocab_size": 9, "max_position_embeddings": 65}))
    save_tokenizer(model)

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(command, "_check_installed", lambda: None)
    monkeypatch.setattr("entr_lab.real.run.Cluster", started)
    sentence = refused("--out", str(tmp_path / "run"), "--set", f"model.path={json.dumps(str(model))}")
    assert "knows 56 tokens, but the model's vocabulary has 9" in sentence


@pytest.mark.skipif(installed, reason="needs an environment without the engines")
def test_what_is_not_installed_is_named() -> None:
    assert "install entr-lab[real-cpu]" in refused()


@pytest.mark.parametrize(
    ("mode", "made", "said"),
    [
        ("async", True, "go on from step-00000020 with: entr-lab train --resume"),
        ("async", False, "before the first checkpoint"),
        ("exact", True, "mode exact cannot be resumed"),
    ],
)
def test_an_interrupted_run_says_what_it_can_go_on_with(
    mode: str, made: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(screen: Any, config: Any, folder: Path, *, resumed: bool) -> dict[str, Any]:
        if made:
            (folder / "checkpoints" / "step-00000020").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_check_installed", lambda: None)
    monkeypatch.setattr(command, "_run", interrupted)
    result = invoke("--out", str(tmp_path / "run"), "--set", f"asynchrony.mode={mode}")
    assert result.exit_code == 130
    assert said in result.stderr


def test_a_resume_takes_the_run_and_more_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_run(tmp_path, load_config(None, ["trainer.batches=7", "method.name=icepop"]))
    seen: list[Any] = []

    def fake(screen: Any, config: Any, folder: Path, *, resumed: bool) -> dict[str, Any]:
        seen.append((config.trainer.batches, config.method.name, folder, resumed))
        counts = {"batches_now": 2, "reward_window": 1}
        numbers = dict.fromkeys(("seconds", "reward_first", "reward_last", "steps_per_minute"), 1.0)
        counts |= {"batches": 9, "groups_trained": 72, "groups_dropped": {"stale": 1}, "folder": str(folder)}
        return {**numbers, **counts, "rollout_tokens_per_second": 5.0}

    monkeypatch.setattr(command, "_check_installed", lambda: None)
    monkeypatch.setattr(command, "_run", fake)
    output = invoke("--resume", str(tmp_path), "--batches", "9").output
    assert seen == [(9, "icepop", tmp_path, True)]
    assert "trained 2 batches after 7 before" in output
    assert "72 groups trained, 1 dropped" in output


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(not installed, reason="needs Ray and vLLM")
@pytest.mark.filterwarnings("ignore")
def test_a_real_run_and_its_resume(tmp_path: Path) -> None:
    """Four batches with an engine and a trainer of their own, then two more; one log, one trace, no group twice."""
    from entr_lab.pipeline import read_log, replay
    from entr_lab.traces.writer import read_trace

    folder = tmp_path / "run"
    first = json.loads(invoke("--json", "--batches", "4", "--out", str(folder)).stdout)
    second = json.loads(invoke("--json", "--batches", "6", "--resume", str(folder)).stdout)
    assert (first["batches"], second["batches"], second["version"]) == (4, 6, 6)
    log = read_log((folder / "events.jsonl").read_bytes())
    _, batches = replay(log.events)
    trained = [group.id for batch in batches[:6] for group in batch.groups]
    assert len(trained) == len(set(trained)) == 48
    assert max(lag for batch in batches for lag in batch.staleness()) <= 6
    _, sequences = read_trace(folder / "trace")
    assert sorted(set(sequences["step"].to_pylist())) == list(range(6))
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 6
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("group_size = 8", "group_size = 4"))
    sentence = refused("--batches", "7", "--resume", str(folder))
    assert "rollout.group_size cannot change in a resume: it was 8 and is 4" in sentence
