"""Processor sharing against a token-by-token twin, closed forms, and the versions read off the marks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_costs import EngineCosts


def rollout(tokens: int, context: int = 0, prefill: int = 0, index: int = 0) -> Rollout:
    job = Rollout(ticket=index, group=0, tokens=tokens, turns=1, prompt=context, started=0.0, reward=0.0)
    job.prefill = prefill
    return job


def drain(engine: Engine) -> list[tuple[float, int]]:
    """Completion times and tickets, in order."""
    done = []
    while math.isfinite(time := engine.next_completion()):
        done.append((time, engine.complete(time).ticket))
    return done


def stepped(arrivals: list[tuple[float, int, int]], costs: EngineCosts, step: float) -> dict[int, float]:
    """The naive twin: Euler steps of length `step` over everyone's remaining tokens."""
    left: dict[int, float] = {}
    context: dict[int, float] = {}
    ends: dict[int, float] = {}
    todo = sorted((time, i, tokens, ctx) for i, (time, tokens, ctx) in enumerate(arrivals))
    now = 0.0
    while todo or left:
        while todo and todo[0][0] <= now + step / 2:
            _, i, tokens, ctx = todo.pop(0)
            left[i], context[i] = float(tokens), float(ctx)
        if left:
            gained = step / (costs.base[len(left)] + costs.kv * sum(context.values()))
            for i in list(left):
                left[i] -= gained
                context[i] += gained
                if left[i] <= 0:
                    ends[i] = now + step + left.pop(i) * step / gained
                    del context[i]
        now += step
    return ends


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 60), st.integers(0, 50)), min_size=1, max_size=6),
    st.sampled_from([0.0, 2e-3]),
)
def test_completions_agree_with_the_stepped_twin(raw: list[tuple[int, int, int]], kv: float) -> None:
    costs = EngineCosts.linear(0.05, 0.02, slots=8, kv=kv)
    arrivals = sorted((time / 4, tokens, ctx) for time, tokens, ctx in raw)
    engine = Engine(0, costs)
    got: dict[int, float] = {}
    for index, (time, tokens, ctx) in enumerate(arrivals):
        while engine.next_completion() <= time:
            now = engine.next_completion()
            got[engine.complete(now).ticket] = now
        engine.arrive(time, rollout(tokens, ctx, index=index))
    got |= {index: time for time, index in drain(engine)}
    expected = stepped(arrivals, costs, step=2e-3)
    assert got.keys() == expected.keys()
    for index, time in got.items():
        assert time == pytest.approx(expected[index], rel=4e-3, abs=4e-3)


def test_one_sequence_takes_its_arithmetic_series() -> None:
    costs = EngineCosts((0.0, 0.01), kv=1e-4, prefill=0.0)
    engine = Engine(0, costs)
    engine.arrive(3.0, rollout(100, context=40))
    # ∫₀¹⁰⁰ (0.01 + 1e-4 (40 + u)) du
    assert engine.next_completion() == pytest.approx(3.0 + 100 * 0.01 + 1e-4 * (40 * 100 + 100**2 / 2), rel=1e-12)


def test_advance_inverts_the_time_of_a_gain() -> None:
    costs = EngineCosts.linear(0.01, 0.001, slots=4, kv=3e-6)
    engine = Engine(0, costs)
    for index in range(3):
        engine.arrive(0.0, rollout(5000, context=700, index=index))
    end = engine.next_completion()
    engine.advance(0.37 * end)
    assert engine.next_completion() == pytest.approx(end, rel=1e-12)


def test_waiting_rollouts_take_slots_in_order_of_arrival() -> None:
    engine = Engine(0, EngineCosts.linear(0.0, 1.0, slots=1))
    for index, tokens in enumerate([5, 1, 3]):
        engine.arrive(0.0, rollout(tokens, index=index))
    assert engine.load == 3
    assert drain(engine) == [(5.0, 0), (6.0, 1), (9.0, 2)]


def test_a_prefill_stalls_the_whole_engine() -> None:
    engine = Engine(0, EngineCosts((0.0, 1.0, 1.0), kv=0.0, prefill=0.1))
    engine.arrive(0.0, rollout(10, index=0))
    engine.arrive(4.0, rollout(10, prefill=20, context=20, index=1))
    assert drain(engine) == [(12.0, 0), (16.0, 1)]


def test_versions_are_read_off_the_marks() -> None:
    engine = Engine(0, EngineCosts((0.0, 1.0, 1.0), kv=0.0, prefill=0.0), version=3)
    engine.arrive(0.0, rollout(10, index=0))
    engine.update(4.0, 4, stall=0.5, recompute_kv=False)
    engine.arrive(6.5, rollout(6, index=1))
    engine.update(8.5, 6, stall=0.0, recompute_kv=False)
    spans = {}
    while math.isfinite(time := engine.next_completion()):
        done = engine.complete(time)
        spans[done.ticket] = (time, done.spans)
    assert spans == {0: (10.5, ((3, 0, 4), (4, 4, 8), (6, 8, 10))), 1: (12.5, ((4, 0, 2), (6, 2, 6)))}


def test_an_update_of_an_idle_engine_leaves_no_mark() -> None:
    engine = Engine(0, EngineCosts.linear(1.0, 0.0, slots=2))
    for version in range(1, 50):
        engine.update(float(version), version, stall=0.0, recompute_kv=True)
    assert (engine.marks, engine.versions) == ([], [49])
    engine.arrive(60.0, rollout(4))
    assert engine.complete(engine.next_completion()).spans == ((49, 0, 4),)


def test_recomputing_the_cache_costs_a_prefill_of_every_context() -> None:
    costs = EngineCosts((0.0, 1.0, 1.0), kv=0.0, prefill=0.01)
    times = []
    for recompute in (False, True):
        engine = Engine(0, costs)
        engine.arrive(0.0, rollout(10, context=30, index=0))
        engine.arrive(0.0, rollout(10, context=30, index=1))
        engine.update(5.0, 1, stall=0.25, recompute_kv=recompute)
        times.append(engine.next_completion())
    assert times == pytest.approx([10.25, 10.25 + 0.01 * 2 * 35])


def test_a_failure_loses_all_on_board_and_takes_its_repair() -> None:
    engine = Engine(0, EngineCosts.linear(1.0, 0.0, slots=1))
    for index in range(3):
        engine.arrive(0.0, rollout(4, index=index))
    assert [lost.ticket for lost in engine.fail(2.0, repair=10.0)] == [0, 1, 2]
    engine.arrive(3.0, rollout(4, index=9))
    assert drain(engine) == [(16.0, 9)]


def test_the_mean_sojourn_of_poisson_arrivals_is_that_of_processor_sharing() -> None:
    """M/G/1-PS: E[sojourn] = E[S]/(1 − ρ), whatever the law of service; here exponential-ish lengths of mean 100."""
    rng = np.random.default_rng(7)
    rho, count = 0.6, 30_000
    engine = Engine(0, EngineCosts.linear(0.0, 0.01, slots=100_000))
    arrivals = np.cumsum(rng.exponential(1.0 / rho, count))
    lengths = np.maximum(1, rng.gamma(0.5, 200.0, count)).astype(int)  # coefficient of variation 1.4
    ends = np.empty(count)
    for index in range(count):
        while engine.next_completion() <= arrivals[index]:
            now = engine.next_completion()
            ends[engine.complete(now).ticket] = now
        engine.arrive(float(arrivals[index]), rollout(int(lengths[index]), index=index))
    for time, index in drain(engine):
        ends[index] = time
    sojourn = ends - arrivals
    service = 0.01 * lengths.mean()
    batches = sojourn.reshape(30, -1).mean(axis=1)
    half_width = 2.05 * batches.std(ddof=1) / math.sqrt(batches.size)
    assert abs(sojourn.mean() - service / (1 - rho * service)) < 1.6 * half_width


def test_a_second_turn_continues_the_spans_of_the_first() -> None:
    engine = Engine(0, EngineCosts.linear(1.0, 0.0, slots=2), version=5)
    job = rollout(4)
    engine.arrive(0.0, job)
    engine.complete(4.0)
    engine.arrive(6.0, job)
    engine.update(7.0, 6, stall=0.0, recompute_kv=False)
    assert engine.complete(engine.next_completion()).spans == ((5, 0, 5), (6, 5, 8))


@pytest.mark.parametrize("given_up", [0, 1, 2, 7])
def test_stopping_a_rollout_leaves_the_others_as_if_it_had_only_been_there_so_long(given_up: int) -> None:
    costs = EngineCosts.linear(0.5, 0.25, slots=2, kv=0.01)
    engine = Engine(0, costs)
    jobs = [rollout(20, context=5, index=0), rollout(30, context=9, index=1), rollout(10, context=3, index=2)]
    for job in jobs:
        engine.arrive(0.0, job)
    stranger = rollout(4, index=7)
    engine.stop(6.0, jobs[given_up] if given_up < 3 else stranger)
    left = {ticket for _, ticket in drain(engine)}
    assert left == {0, 1, 2} - {given_up}
    assert engine.context == 0.0


def test_a_stopped_rollout_takes_its_context_along() -> None:
    engine = Engine(0, EngineCosts((0.0, 1.0, 1.0), kv=0.5, prefill=0.0))
    keep, drop = rollout(20, context=4, index=0), rollout(50, context=8, index=1)
    engine.arrive(0.0, keep)
    engine.arrive(0.0, drop)
    engine.advance(30.0)
    attained = engine.v
    engine.stop(30.0, drop)
    assert engine.context == pytest.approx(4 + attained)
    assert [job.ticket for _, _, job in engine.running] == [0]
