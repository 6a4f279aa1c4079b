"""The intervals against scipy, and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from entr_lab.pipeline import Admission, DropBias, DropReason, Policy, Prompt
from entr_lab.pipeline.drop_bias import mean_shift, share_shift
from tests.pipeline.helpers import finish, make, spans, start


@pytest.mark.parametrize(("t", "d"), [(5, 5), (40, 12), (300, 700)])
def test_the_interval_is_welchs_scaled_by_the_dropped_fraction(t: int, d: int) -> None:
    rng = np.random.default_rng(t)
    trained, dropped = rng.lognormal(0, 1, t), rng.lognormal(0.5, 1.5, d)
    row = mean_shift("length", trained.tolist(), dropped.tolist())
    assert row.shift == pytest.approx(trained.mean() - np.concatenate([trained, dropped]).mean())
    interval = stats.ttest_ind(trained, dropped, equal_var=False).confidence_interval(0.95)
    scale = d / (t + d)
    assert (row.low, row.high) == pytest.approx((interval.low * scale, interval.high * scale), rel=0.01)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = sum(
        mean_shift("x", rng.normal(0, 1, 30).tolist(), rng.normal(0, 3, 15).tolist()).verdict == "not distinguishable"
        for _ in range(2000)
    )
    low, high = stats.binom.interval(0.999, 2000, 0.95)
    assert low <= covered <= high


def test_shares_of_sources_keep_their_level_together() -> None:
    rng = np.random.default_rng(1)
    shares = np.array([0.6, 0.3, 0.1])
    quiet = 0
    for _ in range(1000):
        t, d = rng.multinomial(400, shares), rng.multinomial(150, shares)
        rows = [share_shift("s", int(a), 400, int(b), 150, tests=3) for a, b in zip(t, d, strict=True)]
        quiet += all(row.verdict == "not distinguishable" for row in rows)
    assert quiet / 1000 >= 0.93


@pytest.mark.parametrize(("t", "d"), [(0, 0), (100, 0), (0, 100), (100, 4)])
def test_too_few_groups_give_no_verdict(t: int, d: int) -> None:
    row = mean_shift("x", [1.0] * t, [2.0] * d)
    assert row.verdict == share_shift("s", 0, t, 0, d, tests=2).verdict == "too few groups"
    assert math.isnan(row.low)


def test_a_difference_without_spread_is_certain() -> None:
    row = mean_shift("x", [1.0] * 10, [2.0] * 10)
    assert (row.shift, row.low, row.high, row.verdict) == (-0.5, -0.5, -0.5, "lower")


def test_known_tokens_of_stopped_rollouts_count_and_unknown_ones_are_counted() -> None:
    bias = DropBias()
    pipeline = make(Admission.asynchronous(1, 0, policy=Policy.DROP), group_size=2, deadline=5.0, closed=bias.add)
    pipeline.add_prompts([Prompt("a", "s", 1.0), Prompt("b", "s", 2.0)])
    one, two, _three, _four = start(pipeline, 4)
    pipeline.progress(one.ticket, spans(0, each=50))
    finish(pipeline, two, each=10, now=1.0)
    pipeline.expire(7.0)
    assert pipeline.counts.dropped == {DropReason.STRAGGLER: 2}
    assert bias.length == ([], [30.0])
    assert bias.unknown == 1
    assert bias.latency == ([], [7.0, 7.0])
    assert bias.difficulty == ([], [1.0, 2.0])
    assert [row.name for row in bias.report()] == ["length", "difficulty", "latency", "source=s"]
