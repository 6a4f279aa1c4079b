"""The timeline: lanes, window, and the colours that tell versions apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from entr_lab.errors import DataError
from entr_lab.report.timeline import write_timeline
from entr_lab.sim.idle import Segment


def lanes(generators: int, versions: int) -> dict[str, list[Segment]]:
    timeline = {
        f"generator-{i:04d}": [Segment(float(v), v + 0.8, "generating", v) for v in range(versions)]
        for i in range(generators)
    }
    timeline["trainer"] = [Segment(float(v), v + 0.5, "training", v) for v in range(versions)]
    return timeline


def test_every_lane_is_drawn_trainer_on_top(tmp_path: Path) -> None:
    drawn = write_timeline(tmp_path / "t.png", lanes(3, 5), title="three")
    assert drawn == ["generator-0000", "generator-0001", "generator-0002", "trainer"]
    image = imread(tmp_path / "t.png")
    assert len({tuple(pixel) for pixel in image[:, :, :3].reshape(-1, 3).round(2)}) > 10


def test_large_pools_show_an_even_choice_that_keeps_both_ends(tmp_path: Path) -> None:
    drawn = write_timeline(tmp_path / "t.png", lanes(512, 2), title="many")
    assert len(drawn) == 25
    assert drawn[0] == "generator-0000"
    assert drawn[-2:] == ["generator-0511", "trainer"]


def test_different_versions_have_different_colours(tmp_path: Path) -> None:
    one, two = tmp_path / "one.png", tmp_path / "two.png"
    write_timeline(one, lanes(1, 4), title="x")
    changed = lanes(1, 4)
    changed["generator-0000"][2] = Segment(2.0, 2.8, "generating", 0)
    write_timeline(two, changed, title="x")
    assert (imread(one) != imread(two)).any()


def test_a_run_without_timeline_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="timeline=True"):
        write_timeline(tmp_path / "t.png", {"generator-0000": (), "trainer": ()}, title="none")
