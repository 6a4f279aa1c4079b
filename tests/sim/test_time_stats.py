"""Counters of the time level against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.pipeline import Batch, Group, Prompt, Trajectory, VersionSpan
from entr_lab.pipeline.versions import versions_of
from entr_lab.sim.time_stats import Area, StalenessTally, mean_of, quantile_of


@given(st.lists(st.integers(0, 20), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_histograms_answer_as_the_list_does(values: list[int], share: float) -> None:
    counts = {value: values.count(value) for value in set(values)}
    assert mean_of(counts) == pytest.approx(np.mean(values))
    rank = int(np.ceil(share * len(values) - 1e-9)) - 1
    assert quantile_of(counts, share) == sorted(values)[max(0, rank)]


def test_an_empty_histogram_is_zero() -> None:
    assert (mean_of({}), quantile_of({}, 0.5)) == (0.0, 0)


def test_an_area_is_the_integral_of_its_steps() -> None:
    area = Area()
    for time, step in ((1.0, 2), (3.0, 1), (4.0, -3)):
        area.change(time, step)
    assert area.mean(8.0) == pytest.approx((2 * 2 + 3 * 1) / 8)
    assert area.largest == 3
    assert Area().mean(0.0) == 0.0
    area.change(8.0, 3)
    area.leave([9.0, 10.0, 12.0])
    assert area.mean(16.0) == pytest.approx((2 * 2 + 3 * 1 + 1 + 2 + 4) / 16)


def trajectory(index: int, *spans: tuple[int, int, int]) -> Trajectory:
    return Trajectory(index, 0, index, "w", spans[0][0], -1, 1, 0.0, tuple(VersionSpan(*span) for span in spans))


def test_lags_are_counted_per_trajectory_and_per_token() -> None:
    group = Group(0, Prompt("0"), 2, 0.0)
    group.done = [trajectory(0, (3, 0, 4), (5, 4, 10)), trajectory(1, (6, 0, 7))]
    tally = StalenessTally(per_batch=2)
    assert tally.add(Batch(0, 6, (group,))) == 17
    assert tally.inter == {1: 1, 0: 1}
    assert tally.intra == {2: 1, 0: 1}
    by_hand: dict[int, int] = {}
    for done in group.done:
        for version in versions_of(done.spans):
            by_hand[6 - version] = by_hand.get(6 - version, 0) + 1
    assert dict(tally.token) == by_hand
    assert tally.sample == [((0.4, 3), (1.0, 1)), ((1.0, 0),)]
