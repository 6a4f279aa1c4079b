"""Files and observers of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from entr_lab.real.config import RunConfig
from entr_lab.real.config_sections import EvaluationConfig, LogConfig
from entr_lab.real.evaluation import Evaluation
from entr_lab.real.run_records import Observers, RunRecords

from .loop_fakes import Bench
from .test_loop import MODES, config


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_batches_and_evaluations_are_written_and_told(tmp_path: Path) -> None:
    """One line each; a resume drops what came after its checkpoint, the evaluation at the checkpoint included."""
    run = RunConfig(evaluation=EvaluationConfig(every=2), log=LogConfig(tensorboard=False))
    told: list[Any] = []
    records = RunRecords(run, tmp_path, 0, Observers(step=[told.append], evaluation=[told.append]))
    bench = Bench(config(MODES["sync"]), batches=4)
    bench.run()
    for report in bench.reports:
        records.step(report)
    for done in (0, 2, 4):
        records.evaluation(Evaluation(done, 7, 1, {"reward_mean": done / 8, "reward_standard_error": float("nan")}))
    records.close()

    assert [line["step"] for line in lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3]
    assert [line["version"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4]
    assert lines(tmp_path / "evaluations.jsonl")[1] == {
        "step": 2,
        "rollouts": 7,
        "failed": 1,
        "reward_mean": 0.25,
        "reward_standard_error": None,
    }
    assert len(told) == 7

    RunRecords(run, tmp_path, 2, Observers()).close()
    assert [line["step"] for line in lines(tmp_path / "metrics.jsonl")] == [0, 1]
    assert [line["step"] for line in lines(tmp_path / "evaluations.jsonl")] == [0]


@pytest.mark.parametrize("every", [0, 3])
def test_a_file_of_evaluations_is_only_there_if_wanted(tmp_path: Path, every: int) -> None:
    run = RunConfig(evaluation=EvaluationConfig(every=every), log=LogConfig(tensorboard=False))
    RunRecords(run, tmp_path, 0, Observers()).close()
    assert (tmp_path / "evaluations.jsonl").exists() == bool(every)
