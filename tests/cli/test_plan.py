"""`entr-lab plan`: what it prints, what it writes, and what it refuses in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from entr_lab.cli.plan import plan
from entr_lab.errors import ConfigError, EntrLabError, RangeError, UnknownNameError
from entr_lab.sim.schedule import read_schedule

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(plan)

TOML = """
gpus = 4
generator_gpus = 2
[costs]
decode_fixed = 0.01
decode_per_sequence = 0.001
slots = 16
trainer_fixed = 0.3
trainer_per_token = 1e-3
transfer = 0.1
[lengths]
mean = 60
cap = 300
[batch]
groups = 4
rollouts = 2
[protocol]
max_inter = 2
max_intra = 2
"""


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(TOML)
    return str(path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--workers", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def refused(*arguments: str) -> EntrLabError:
    result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
    assert isinstance(result.exception, EntrLabError)
    return result.exception


def test_a_plan_from_toml_prints_comparison_account_staleness_and_advice(small: str) -> None:
    text = run(small, "--steps", "30", "--seeds", "2")
    for piece in (
        "Throughput",
        "colocated-sync",
        "async",
        "Speed-up",
        "sums to the wall-clock",
        "Staleness",
        "generate",
    ):
        assert piece in text
    assert "One generator more brings" in text


def test_json_holds_the_same_answers_and_repeats_itself(small: str) -> None:
    arguments = (small, "--steps", "30", "--seeds", "2", "--json")
    data = json.loads(run(*arguments))
    assert data == json.loads(run(*arguments))
    assert data["seeds"] == [0, 1]
    assert data["predictions"][0]["speedup"]["mean"] > 1.0
    assert {row["generator_gpus"] for row in data["grid"]} == {1, 2, 3}
    assert data["best_generator_gpus"] in {1, 2, 3}
    assert sum(data["result"]["accounts"]["trainer"].values()) == pytest.approx(data["result"]["seconds"])
    assert data["plan"]["name"] == "small"


def test_seeds_change_the_run(small: str) -> None:
    one, two = (
        json.loads(run(small, "--steps", "20", "--seeds", "1", "--no-search", "--json", "--seed", seed))
        for seed in "07"
    )
    assert one["result"]["tokens_per_second"] != two["result"]["tokens_per_second"]
    assert one["grid"] == []


def test_out_holds_plan_timeline_and_a_schedule_that_can_be_read(small: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(small, "--steps", "30", "--seeds", "1", "--no-search", "--out", str(out))
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "schedule.json", "timeline.png"]
    data = json.loads((out / "plan.json").read_text())
    assert read_schedule(out / "schedule.json").max_lag == max(map(int, data["result"]["token_staleness"]))


def test_flags_go_over_the_file_and_tighten_the_bound(small: str) -> None:
    text = run(small, "--steps", "20", "--seeds", "1", "--no-search", "--json", "--inter", "1", "--intra", "0")
    data = json.loads(text)
    assert data["plan"]["protocol"]["max_inter"] == 1
    assert max(map(int, data["result"]["token_staleness"])) <= 1


def test_a_changed_preset_is_not_compared_with_what_was_measured_under_other_inputs() -> None:
    text = run("--preset", "laptop", "--steps", "20", "--seeds", "1", "--no-search", "--json", "--batch", "32")
    data = json.loads(text)
    assert data["plan"]["published"] is None
    assert data["plan"]["name"] == "laptop (changed)"


def test_the_paper_stands_beside_the_prediction_under_its_own_label() -> None:
    text = run("--preset", "dapo-math", "--steps", "4", "--seeds", "1", "--no-search")
    for piece in ("2607.22186", "2.60×", "error", "Assumed here"):
        assert piece in text


def test_the_presets_can_be_listed() -> None:
    text = run("--preset", "list")
    for name in ("dapo-math", "search-r1", "browsecomp-plus", "gsm8k-tools", "verl-one-step-off", "laptop"):
        assert name in text


@pytest.mark.slow
def test_a_method_is_trained_under_the_plans_staleness(small: str) -> None:
    arguments = (small, "--steps", "20", "--seeds", "1", "--no-search", "--json", "--survives", "entr")
    data = json.loads(run(*arguments))
    survival = data["survival"]
    assert survival["method"] == "entr"
    assert survival["verdict"] in ("survives", "degraded", "collapsed")
    assert survival["max_lag"] == max(map(int, data["result"]["token_staleness"]))


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ((), ConfigError, "give a plan"),
        (("--preset", "dapo-meth"), UnknownNameError, "did you mean 'dapo-math'"),
        (("missing.toml",), ConfigError, "cannot be read"),
        (("--preset", "laptop", "--inter", "0", "--intra", "0"), ConfigError, "mode split-sync"),
        (("--preset", "laptop", "--batch", "4"), ConfigError, "batch.trajectories = 8"),
        (("--preset", "laptop", "--generator-gpus", "0"), ConfigError, "generator_gpus = 1"),
        (("--preset", "laptop", "--tool-seconds", "-1"), ConfigError, "nearest plan that can run has 0"),
        (("--preset", "laptop", "--mode", "asink"), ConfigError, "protocol.mode"),
        (("--preset", "laptop", "--seeds", "0"), RangeError, "--seeds"),
        (("--preset", "laptop", "--steps", "1"), RangeError, "--steps"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason_and_the_nearest(arguments, kind, says) -> None:
    error = refused(*arguments)
    assert isinstance(error, kind)
    assert says in str(error)


def test_a_misspelt_key_names_the_nearest(small: str) -> None:
    path = Path(small)
    path.write_text(TOML.replace("rollouts = 2", "rolouts = 2"))
    assert "did you mean 'rollouts'" in str(refused(small))
