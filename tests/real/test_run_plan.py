"""What a dry run says of each process."""

from __future__ import annotations

from pathlib import Path

import pytest

from entr_lab.real.config_io import load_config
from entr_lab.real.run_plan import plan_processes

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_planned(path: Path) -> None:
    config = load_config(path)
    rows = {row.name: row for row in plan_processes(config)}
    assert rows["trainer"].count == config.trainer.processes
    assert rows["generator"].count == config.rollout.generators
    assert ("GPU" in rows["generator"].place) == bool(config.cluster.gpus_per_node)


def test_stored_versions_are_counted_in_mode_exact() -> None:
    settings = ["asynchrony.mode=exact", "asynchrony.max_inter=22", "asynchrony.max_intra=8"]
    rows = {row.name: row.holds for row in plan_processes(load_config(None, settings))}
    assert "31 stored versions" in rows["shared memory"]
    assert "the newest version" in {r.name: r.holds for r in plan_processes(load_config())}["shared memory"]


@pytest.mark.parametrize(("mode", "inter", "intra"), [("sync", 0, 0), ("one-step", 1, 0), ("async", 4, 2)])
def test_the_bounds_that_hold_are_said(mode: str, inter: int, intra: int) -> None:
    """max_inter and max_intra are those of modes async and exact; the others have their own."""
    rows = {row.name: row.holds for row in plan_processes(load_config(None, [f"asynchrony.mode={mode}"]))}
    assert f"mode {mode}: inter lag at most {inter}, intra lag at most {intra}" in rows["driver"]
