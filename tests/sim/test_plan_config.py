"""Plans: what is refused, in which words, and that the nearest plan that is named can in fact run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from entr_lab.errors import ConfigError
from entr_lab.sim.plan_config import parse_plan, read_plan, with_protocol, with_split
from entr_lab.sim.time_level import simulate

BASE: dict[str, Any] = {
    "gpus": 8,
    "generator_gpus": 4,
    "tensor_parallel": 2,
    "costs": {
        "decode_fixed": 0.01,
        "decode_per_sequence": 0.001,
        "slots": 4,
        "trainer_fixed": 0.2,
        "trainer_per_token": 1e-3,
        "transfer": 0.1,
    },
    "lengths": {"mean": 30, "cap": 90},
    "batch": {"groups": 3, "rollouts": 2},
}


def changed(**changes: Any) -> dict[str, Any]:
    data = dict(BASE)
    for key, value in changes.items():
        data[key] = data.get(key, {}) | value if isinstance(value, dict) else value
    return data


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"generator_gpus": 0}, "generator_gpus"),
        ({"generator_gpus": 8}, "generator_gpus"),
        ({"generator_gpus": 3}, "generator_gpus"),
        ({"gpus": 2}, "gpus"),
        ({"gpus": 7, "protocol": {"mode": "colocated-sync"}}, "gpus"),
        ({"batch": {"groups": None, "trajectories": 3, "rollouts": 4}}, "batch.trajectories"),
        ({"batch": {"groups": None, "trajectories": 9, "rollouts": 2}}, "batch.trajectories"),
        ({"protocol": {"mode": "async", "max_inter": 0, "max_intra": 0}}, "protocol.max_inter"),
        ({"protocol": {"mode": "async", "max_inter": 1, "sync_every": 4}}, "max_inter"),
        ({"protocol": {"buffer_groups": 2}}, "buffer_groups"),
        ({"tools": {"turns": 3.0, "max_turns": 2}}, "max_turns"),
    ],
)
def test_the_nearest_plan_that_is_named_can_run(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_plan(changed(**changes))
    message = str(caught.value)
    found = re.search(rf"{re.escape(key)} (?:= |to )(\d+)[.,]", message.split("nearest plan")[-1])
    assert found, message
    section, _, name = ("protocol." * (key in ("max_inter", "buffer_groups")) + key).rpartition(".")
    section = "tools" if key == "max_turns" else section
    data = changed(**changes)
    if section:
        data[section] = data[section] | {name: int(found[1])}
    else:
        data[name] = int(found[1])
    if key == "gpus" and "protocol" not in changes:
        data["generator_gpus"] = 2
    assert simulate(parse_plan(data), steps=3).steps == 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (changed(gpu=4), r"unknown key 'gpu'.*did you mean 'gpus'"),
        (changed(lengths={"maen": 3}), r"unknown key 'lengths.maen'.*did you mean 'mean'"),
        (changed(costs={"transferr": 3}), r"did you mean 'transfer'"),
        ({key: value for key, value in BASE.items() if key != "lengths"}, "lacks 'lengths'"),
        (changed(lengths={"cap": -3}), "lengths.cap.*nearest plan that can run has 1"),
        (changed(costs={"transfer": float("nan")}), "costs.transfer"),
        (changed(hardware={"gpu": "H100", "model": "qwen3-8b"}), "exactly one"),
        ({key: value for key, value in BASE.items() if key != "costs"}, "exactly one"),
        (changed(batch={"trajectories": 8}), "exactly one"),
        (changed(lengths={"kind": "empirical"}), "lengths.values"),
        (changed(protocol={"mode": "one-step", "sync_every": 2}), "sync_every = 1"),
    ],
)
def test_wrong_plans_are_refused_in_one_sentence(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_plan(data)
    assert "\n" not in str(caught.value)


def test_files_are_read_and_named_after_themselves(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("gpus = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_plan(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan(tmp_path / "none.toml")


@pytest.mark.parametrize("path", sorted(Path("examples/plans").glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_run(path: Path) -> None:
    plan = read_plan(path)
    assert plan.name == path.stem
    assert simulate(plan, steps=2).steps == 2


def test_there_are_examples() -> None:
    assert len(list(Path("examples/plans").glob("*.toml"))) >= 3


def test_changes_are_checked_again() -> None:
    plan = parse_plan(BASE)
    assert with_split(plan, 6).trainer_gpus == 2
    assert with_protocol(plan, max_inter=7).protocol.max_inter == 7
    with pytest.raises(ConfigError, match="no trainer"):
        with_split(plan, 8)
    with pytest.raises(ConfigError, match=r"protocol\.max_inter"):
        with_protocol(plan, max_inter=-1)


def test_colocation_shares_the_gpus() -> None:
    plan = with_protocol(parse_plan(BASE), mode="colocated-sync")
    assert (plan.generators, plan.trainer_gpus) == (4, 8)
    plan = parse_plan(BASE)
    assert (plan.generators, plan.trainer_gpus) == (2, 4)


def test_a_batch_in_trajectories_is_a_batch_in_groups() -> None:
    data = changed(batch={"groups": None, "trajectories": 12, "rollouts": 4})
    assert parse_plan(data).batch.size == 3
