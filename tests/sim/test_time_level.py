"""The time level: closed forms, conservation, the bound, and progress under everything that can go wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import ConfigError
from entr_lab.sim.idle import on_grid
from entr_lab.sim.plan_config import Plan, parse_plan
from entr_lab.sim.time_level import simulate
from entr_lab.sim.time_stats import TimeResult, mean_of

COSTS = {
    "decode_fixed": 0.01,
    "decode_per_sequence": 0.001,
    "slots": 16,
    "trainer_fixed": 0.5,
    "trainer_per_token": 1e-3,
    "transfer": 0.25,
}


def plan(**changes: Any) -> Plan:
    """A small plan; `protocol`, `costs`, `lengths` and `tools` are merged over its own."""
    data: dict[str, Any] = {
        "gpus": 4,
        "generator_gpus": 3,
        "costs": COSTS,
        "lengths": {"mean": 60, "cv": 0.8, "cap": 300, "prompt": 10},
        "batch": {"groups": 4, "rollouts": 2},
        "protocol": {"mode": "async", "max_inter": 2, "max_intra": 2},
    }
    for key, value in changes.items():
        data[key] = data.get(key, {}) | value if isinstance(value, dict) else value
    return parse_plan(data)


def check_same(ours: TimeResult, theirs: TimeResult) -> None:
    """Two ways to simulate one run: equal but for sums in another order."""
    for name in theirs.__dataclass_fields__:
        one, other = getattr(ours, name), getattr(theirs, name)
        if isinstance(other, float):
            assert one == pytest.approx(other, rel=1e-12), name
        else:
            assert one == other, name


def check_books(result: TimeResult, case: Plan) -> None:
    """What must hold for every run: books that balance, the bound, consistent counts."""
    for name, seconds in result.accounts.items():
        assert math.fsum(seconds.values()) == result.seconds, name
    assert result.seconds == on_grid(result.seconds)
    lags = result.token_staleness
    bound = {"async": case.protocol.max_inter + case.protocol.max_intra, "one-step": 1}.get(result.mode, 0)
    assert max(lags) <= bound
    assert min(lags) >= 0
    trained = (result.steps - result.warm_up) * case.batch.size * case.batch.rollouts
    assert sum(result.inter.values()) == sum(result.intra.values())
    if case.protocol.deadline is None and case.failures is None:
        assert sum(result.inter.values()) == trained
    if result.mode == "async":
        assert max(result.inter) <= case.protocol.max_inter
        assert max(result.intra) <= case.protocol.max_intra


MODES = ("colocated-sync", "split-sync", "one-step", "async")


@settings(max_examples=30, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    inter=st.integers(0, 4),
    intra=st.integers(0, 3),
    policy=st.sampled_from(["wait", "drop", "drop-and-requeue"]),
    on_update=st.sampled_from(["hold", "abort"]),
    order=st.sampled_from(["fifo", "freshest-first", "oldest-first"]),
    sync_every=st.sampled_from([1, 1, 2]),
    turns=st.sampled_from([1.0, 2.5]),
    reward=st.sampled_from([0.0, 0.7]),
    failing=st.booleans(),
    deadline=st.sampled_from([None, 6.0]),
    zero=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 1000),
)
def test_any_plan_progresses_and_its_books_balance(
    mode, inter, intra, policy, on_update, order, sync_every, turns, reward, failing, deadline, zero, seed
) -> None:
    sync_every = sync_every if mode == "async" else 1
    inter = max(inter, sync_every - 1, 1 - intra)
    case = plan(
        protocol={
            "mode": mode,
            "max_inter": inter,
            "max_intra": intra,
            "policy": policy,
            "on_update": on_update,
            "order": order,
            "sync_every": sync_every,
            "deadline": deadline,
            "zero_variance": zero,
        },
        tools={
            "turns": turns,
            "max_turns": 6 if turns > 1 else 1,
            "seconds": 0.5,
            "tokens": 8,
            "reward_seconds": reward,
        },
        failures={"mean_seconds": 15.0, "repair_seconds": 3.0} if failing else None,
    )
    result = simulate(case, steps=12, seed=seed, sample=3)
    check_books(result, case)
    assert result == simulate(case, steps=12, seed=seed, sample=3)


def test_the_synchronous_cycle_is_the_sum_of_its_parts() -> None:
    """Fixed lengths, one generator: a step is prefill-free decoding of the batch, the trainer step, the transfer."""
    case = plan(
        gpus=2,
        generator_gpus=1,
        lengths={"kind": "fixed", "mean": 50, "cap": 50, "prompt": 0},
        protocol={"mode": "split-sync"},
        costs=COSTS | {"decode_per_context_token": 1e-5},
    )
    result = simulate(case, steps=8)
    decode = 50 * (0.01 + 0.001 * 8) + 1e-5 * 8 * 50**2 / 2
    train = 0.5 + 1e-3 * 8 * 50
    assert result.seconds == pytest.approx(8 * (decode + train) + 7 * 0.25, rel=1e-9)
    assert result.seconds_per_step == pytest.approx(decode + train + 0.25, rel=1e-9)
    trainer = result.accounts["trainer"]
    assert trainer["training"] == pytest.approx(8 * train)
    assert trainer["generation"] == pytest.approx(8 * decode)
    assert trainer["weights"] == pytest.approx(7 * 0.25)
    generator = result.accounts["generator-0000"]
    assert generator["generating"] == pytest.approx(8 * decode)
    assert generator["training"] == pytest.approx(8 * train)


def test_one_step_overlaps_the_shorter_phase_with_the_longer() -> None:
    """Deterministic two-stage cycle: max(generation, training) + transfer, and exactly one version behind."""
    base = {"kind": "fixed", "mean": 50, "cap": 50, "prompt": 0}
    for fixed in (0.1, 3.0):  # generation-bound, training-bound
        case = plan(
            gpus=2,
            generator_gpus=1,
            lengths=base,
            protocol={"mode": "one-step"},
            costs=COSTS | {"trainer_fixed": fixed, "transfer": 0.0, "slots": 8},
        )
        result = simulate(case, steps=20)
        decode, train = 50 * (0.01 + 0.001 * 8), fixed + 1e-3 * 8 * 50
        assert result.seconds_per_step == pytest.approx(max(decode, train), rel=1e-6)
        assert result.token_staleness == {1: (20 - result.warm_up) * 8 * 50}


def test_colocation_uses_all_gpus_in_turn() -> None:
    fixed = {"kind": "fixed", "mean": 40, "cap": 40, "prompt": 0}
    together = simulate(plan(lengths=fixed, protocol={"mode": "colocated-sync"}), steps=6)
    # 8 rollouts on 4 generators, a trainer of 4 GPUs
    assert together.seconds_per_step == pytest.approx(40 * (0.01 + 0.002) + 0.5 + 1e-3 * 8 * 40 / 4 + 0.25, rel=1e-9)


def test_littles_law_holds_for_rollouts_in_flight() -> None:
    """L = λW with L an integral over time and W a mean over rollouts, counted by separate routes."""
    result = simulate(plan(), steps=400, seed=3)
    rate = result.rollouts / result.seconds
    unfinished = 3 * 4 * 2  # at most (max_inter + 1) batches are alive at the end
    assert result.in_flight_mean == pytest.approx(rate * result.rollout_seconds, rel=2 * unfinished / result.rollouts)


def test_versions_of_a_plan_that_keeps_up_are_all_current() -> None:
    result = simulate(plan(protocol={"mode": "split-sync"}), steps=10)
    assert set(result.token_staleness) == {0}


def test_tighter_bounds_are_never_staler() -> None:
    staleness = []
    for inter, intra in ((1, 0), (2, 2), (6, 4)):
        case = plan(protocol={"max_inter": inter, "max_intra": intra}, costs=COSTS | {"trainer_fixed": 2.0})
        staleness.append(mean_of(simulate(case, steps=60, seed=1).token_staleness))
    assert staleness[0] < staleness[1] < staleness[2]


def test_tool_waits_and_rewards_show_in_the_account() -> None:
    slow = {"turns": 3.0, "max_turns": 8, "seconds": 30.0, "seconds_cv": 0.1, "reward_seconds": 2.0}
    result = simulate(plan(tools=slow), steps=6)
    assert result.idle("generator")["tools"] > 0.5 * 3 * result.seconds
    assert result.rollout_seconds > 2.0 + 30.0  # most rollouts call a tool twice


def test_failures_lose_work_and_time_but_no_group() -> None:
    quiet = simulate(plan(), steps=60, seed=2)
    failing = simulate(plan(failures={"mean_seconds": 4.0, "repair_seconds": 2.0}), steps=60, seed=2)
    assert failing.rollouts_lost["worker-lost"] > 5
    assert failing.idle("generator")["failed"] > 0
    assert failing.seconds > quiet.seconds


def test_the_timeline_tells_what_the_account_sums() -> None:
    result = simulate(plan(), steps=10, timeline=True)
    for name, stretches in result.timeline.items():
        by_state: dict[str, float] = {}
        for stretch in stretches:
            by_state[stretch.state] = by_state.get(stretch.state, 0.0) + stretch.end - stretch.start
        assert by_state == pytest.approx(result.accounts[name], abs=1e-9)
    versions = [stretch.version for stretch in result.timeline["generator-0000"]]
    assert versions == sorted(versions)
    assert versions[-1] >= 8


def test_the_sample_has_the_staleness_of_the_whole() -> None:
    result = simulate(plan(), steps=200, seed=4, sample=8)
    assert len(result.sample) == 8 * (200 - result.warm_up)
    largest = max(steps[0][1] for steps in result.sample)
    assert largest == max(result.token_staleness)


def test_zero_variance_groups_are_generated_and_dropped() -> None:
    result = simulate(plan(protocol={"zero_variance": 0.5}), steps=40)
    dropped = result.groups_dropped["zero-variance"]
    assert dropped == pytest.approx(40 * 4, rel=0.3)  # as many as are trained


def test_weights_may_be_sent_every_so_many_steps() -> None:
    often = simulate(plan(protocol={"max_inter": 6}), steps=40)
    rarely = simulate(plan(protocol={"max_inter": 6, "sync_every": 3}), steps=40)
    assert rarely.accounts["trainer"]["weights"] == pytest.approx(13 * 0.25)
    assert often.accounts["trainer"]["weights"] == pytest.approx(39 * 0.25)


def test_limits_that_drop_everything_are_named() -> None:
    with pytest.raises(ConfigError, match=r"straggler.*loosen the deadline"):
        simulate(plan(protocol={"deadline": 0.01}), steps=3)


def test_dropping_what_is_stale_trains_on_shorter_work_and_the_report_says_so() -> None:
    tight = {"max_inter": 1, "max_intra": 0, "on_update": "abort", "policy": "drop"}
    long_tail = {"cv": 1.5, "cap": 2000, "group_correlation": 0.7}
    rows = {
        policy: {row.name: row for row in simulate(plan(protocol=protocol, lengths=long_tail), steps=300).drop_bias}
        for policy, protocol in (("drop", tight), ("wait", {}))
    }
    assert rows["drop"]["difficulty"].verdict == "lower"
    assert rows["wait"]["difficulty"].shift == 0.0
