"""A cohort's runs: bitwise independent of each other, complete records, and failure of one alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from entr_lab.diagnostics import METRICS
from entr_lab.objective import get_method
from entr_lab.sim.cohort import Cohort
from entr_lab.sim.outcome import RunRecord
from entr_lab.sim.scenario import Scenario
from tests.sim.small import SMALL, with_lag

ALL = ("sync-grpo", "async-grpo", "fixed", "icepop", "kpop", "m2po", "entr", "tis", "entr-outward")


def trained(methods: Sequence[str], seeds: Sequence[int], scenario: Scenario = SMALL) -> tuple[Cohort, list[RunRecord]]:
    cohort = Cohort(scenario, [get_method(name) for name in methods], seeds)
    finished = list(cohort.train())
    assert finished == list(range(1, scenario.updates + 1))
    return cohort, cohort.records()


def assert_equal(one: RunRecord, other: RunRecord) -> None:
    assert (one.method, one.seed, one.updates, one.failed_at) == (
        other.method,
        other.seed,
        other.updates,
        other.failed_at,
    )
    for name in ("eval_updates", "eval_reward", "eval_entropy"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in one.metrics:
        np.testing.assert_array_equal(one.metrics[name], other.metrics[name], err_msg=f"{one.method} {name}")
    for mine, theirs in zip(one.snapshots, other.snapshots, strict=True):
        np.testing.assert_array_equal(mine.log_ratio, theirs.log_ratio)
        np.testing.assert_array_equal(mine.keep, theirs.keep)


@pytest.fixture(scope="module")
def everything() -> dict[tuple[str, int], RunRecord]:
    _, records = trained(ALL, (601, 602, 603))
    return {(record.method, record.seed): record for record in records}


@pytest.mark.parametrize(
    ("methods", "seeds"), [(("entr",), (602,)), (("m2po", "sync-grpo"), (603, 601)), (ALL[::-1], (602,))]
)
def test_a_run_is_bitwise_the_same_in_any_cohort(
    everything: dict[tuple[str, int], RunRecord], methods: Sequence[str], seeds: Sequence[int]
) -> None:
    _, records = trained(methods, seeds)
    assert len(records) == len(methods) * len(seeds)
    for record in records:
        assert_equal(record, everything[record.method, record.seed])


def test_runs_of_different_methods_and_seeds_differ(everything: dict[tuple[str, int], RunRecord]) -> None:
    """The independence above would be empty if nothing depended on anything."""
    norms = {key: tuple(record.metrics["gradient_norm"]) for key, record in everything.items()}
    assert len(set(norms.values())) == len(norms)


def test_records_are_complete(everything: dict[tuple[str, int], RunRecord]) -> None:
    for record in everything.values():
        assert record.eval_updates.tolist() == [0, 3, 6, 7]
        assert set(record.metrics) == {*METRICS, "reward", "entropy_mu", "gradient_norm"}
        finite = [name for name in record.metrics if not name.startswith("removed_")]
        assert all(np.isfinite(record.metrics[name]).all() for name in finite)
        assert [snapshot.update for snapshot in record.snapshots] == [0, 3, 6]
        assert record.failed_at is None


def test_stopping_keeps_the_finished_updates() -> None:
    cohort = Cohort(SMALL, [get_method("entr")], (601,))
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 3

    assert list(cohort.train(stop)) == [1, 2, 3]
    record = cohort.records()[0]
    assert record.updates == 3
    assert record.eval_updates.tolist() == [0]
    assert len(record.metrics["reward"]) == 3


def test_a_run_that_fails_is_frozen_and_the_others_do_not_notice(
    everything: dict[tuple[str, int], RunRecord],
) -> None:
    cohort = Cohort(SMALL, [get_method("entr"), get_method("async-grpo")], (601, 602))
    steps = cohort.train()
    next(steps)
    next(steps)
    cohort.parameters[1, -40:] = torch.nan  # seed 602 of entr
    assert list(steps) == list(range(3, SMALL.updates + 1))
    records = {(record.method, record.seed): record for record in cohort.records()}
    assert records["entr", 602].failed_at == 2
    for key in (("entr", 601), ("async-grpo", 601), ("async-grpo", 602)):
        assert_equal(records[key], everything[key])


def test_groups_of_equal_reward_move_nothing() -> None:
    """An untrained policy that is forgiven nothing earns nothing: no advantage, no gradient, no motion."""
    scenario = replace(SMALL, warm_start=replace(SMALL.warm_start, steps=0), task=replace(SMALL.task, tolerance=0.0))
    cohort = Cohort(scenario, [get_method("async-grpo")], (604,))
    before = cohort.parameters.clone()
    list(cohort.train())
    assert cohort.records()[0].metrics["reward"].max() == 0.0
    assert torch.equal(cohort.parameters, before)


def test_a_table_of_equal_lags_is_the_law_to_rounding() -> None:
    """The ragged path (a product per version) and the homogeneous one agree; only the sums' order differs."""
    law = with_lag(2, 1)
    table = law.lag.lag_table(law.task.horizon)
    ragged = with_lag(0, 0, type(table)(np.repeat(table.lags, 2, axis=0)))
    one, other = (trained(("async-grpo",), (601,), scenario)[1][0] for scenario in (law, ragged))
    np.testing.assert_allclose(one.metrics["all_m2"][:3], other.metrics["all_m2"][:3], rtol=1e-3)
    np.testing.assert_allclose(one.metrics["reward"][:3], other.metrics["reward"][:3], atol=1 / 8)
