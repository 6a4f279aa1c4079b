"""Schedules: what is written is read, lags obey the law of the learning level, bad files are refused whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import DataError
from entr_lab.pipeline.versions import VersionSpan, versions_of
from entr_lab.sim.schedule import Schedule, read_schedule, steps_of, write_schedule


@st.composite
def trajectories(draw: st.DrawFn) -> tuple[list[VersionSpan], int]:
    gains = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 40)), min_size=1, max_size=6))
    spans, version, start = [], draw(st.integers(0, 5)), 0
    for rise, length in gains:
        spans.append(VersionSpan(version, start, start + length))
        version, start = version + rise, start + length
    return spans, spans[-1].version + draw(st.integers(0, 4))


@given(trajectories(), st.integers(0, 2**31))
def test_at_its_own_length_a_trajectory_gets_back_its_versions(case, seed: int) -> None:
    spans, target = case
    length = spans[-1].stop
    schedule = Schedule(plan="p", rollouts=(steps_of(spans, target),))
    table = schedule.lags(2, length, np.random.default_rng(seed))
    assert table.dtype == np.int64
    assert (target - table[0]).tolist() == versions_of(spans)


@given(st.lists(trajectories(), min_size=1, max_size=5), st.integers(1, 30))
def test_lags_never_rise_within_a_rollout_and_stay_below_the_largest(cases, tokens: int) -> None:
    schedule = Schedule(plan="p", rollouts=tuple(steps_of(spans, target) for spans, target in cases))
    table = schedule.lags(17, tokens, np.random.default_rng(0))
    assert table.shape == (17, tokens)
    assert (np.diff(table, axis=1) <= 0).all()
    assert table.min() >= 0
    assert table.max() <= schedule.max_lag


def test_every_rollout_is_drawn_about_equally_often_and_the_mean_is_the_schedules() -> None:
    schedule = Schedule(plan="p", rollouts=(((0.25, 3), (1.0, 1)), ((1.0, 0),)))
    table = schedule.lags(4000, 16, np.random.default_rng(5))
    assert schedule.mean_lag == pytest.approx((0.25 * 3 + 0.75 * 1) / 2)
    assert table.mean() == pytest.approx(schedule.mean_lag, abs=0.05)
    assert schedule.max_lag == 3


def test_gaps_of_tool_answers_do_not_count() -> None:
    spans = [VersionSpan(4, 0, 10), VersionSpan(5, 90, 100)]
    assert steps_of(spans, 6) == ((0.5, 2), (1.0, 1))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    written = write_schedule(path, "p", [((1 / 3, 2), (1.0, 0)), ((1.0, 7),)])
    assert read_schedule(path) == written
    assert [entry.name for entry in tmp_path.iterdir()] == ["schedule.json"]


GOOD = {"format": "entr-lab-schedule", "version": 1, "plan": "p", "rollouts": [[[0.5, 2], [1.0, 1]]]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rollouts": []}, "no rollout"),
        ({"rollouts": [[]]}, "rollout 0"),
        ({"rollouts": [[[0.5, 2]]]}, "rise to 1"),
        ({"rollouts": [[[0.5, 2], [0.4, 1], [1.0, 1]]]}, "rise to 1"),
        ({"rollouts": [[[0.5, 1], [1.0, 2]]]}, "lags of rollout 0 rise"),
        ({"rollouts": [[[1.0, -1]]]}, "negative"),
        ({"rollouts": [[[1.0, 0.5]]]}, "integer"),
        ({"version": 2}, "version"),
        ({"colour": 1}, "colour"),
    ],
)
def test_files_that_hold_no_lags_are_refused(tmp_path: Path, change: dict, says: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(DataError, match=says):
        read_schedule(path)


def test_missing_and_truncated_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    with pytest.raises(DataError, match="cannot be read"):
        read_schedule(path)
    path.write_text(json.dumps(GOOD)[:-9])
    with pytest.raises(DataError, match="not whole JSON"):
        read_schedule(path)
