"""A fleet against its engines, one by one: the same completions at the same times, under the same versions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_costs import EngineCosts
from entr_lab.sim.time_fleet import Fleet

PROMPT = 7
COUNT = 3


class Twin:
    """Engines with one event per completion; among ties the one whose event was scheduled first."""

    def __init__(self, costs: EngineCosts) -> None:
        self.engines = [Engine(index, costs) for index in range(COUNT)]
        self.place = list(range(COUNT))
        self.places = COUNT

    def schedule(self, index: int) -> None:
        self.place[index] = self.places
        self.places += 1

    def arrive(self, now: float, index: int, length: int, ticket: int) -> None:
        self.engines[index].arrive(now, Rollout(ticket, ticket // 2, length, 1, PROMPT, now, 0.0))

    def update(self, now: float, version: int, stall: float, recompute: bool) -> None:
        for index, engine in enumerate(self.engines):
            engine.update(now, version, stall, recompute)
            self.schedule(index)

    def ends(self, count: int) -> list[tuple[float, int, int, tuple]]:
        done = []
        while len(done) < count:
            due = [engine.next_completion() for engine in self.engines]
            index = min(range(COUNT), key=lambda i: (due[i], self.place[i]))
            job = self.engines[index].complete(due[index])
            self.schedule(index)
            done.append((due[index], index, job.ticket, job.spans))
        return done


def listed(fleet: Fleet, count: int) -> list[tuple[float, int, int, tuple]]:
    coming = fleet.coming
    spans = fleet.spans(0, count // 2) + fleet.spans(count // 2, count)
    return list(zip(coming.times[:count], coming.engines[:count], coming.tickets[:count], spans, strict=True))


def between(fleet: Fleet, ended: int, now: float) -> float:
    """A time for the next intervention: past what has ended, not past what comes."""
    times = fleet.coming.times
    low = max([now, *times[ended - 1 : ended]]) if ended else now
    high = times[ended] if ended < len(times) else low + 2.0
    return low + 0.4 * (high - low) if high > low else low


steps = st.tuples(
    st.lists(st.tuples(st.integers(0, COUNT - 1), st.sampled_from([1, 3, 3, 8, 20])), max_size=7),
    st.booleans(),
    st.floats(0.0, 1.0),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(steps, min_size=1, max_size=6), st.sampled_from([0.0, 1e-3]), st.booleans(), st.sampled_from([0.0, 0.3])
)
def test_a_forecast_is_what_one_event_after_the_other_gives(
    script: list[tuple[list[tuple[int, int]], bool, float]], kv: float, recompute: bool, stall: float
) -> None:
    costs = EngineCosts.linear(0.01, 0.02, slots=64, kv=kv, prefill=1e-3)
    fleet, twin = Fleet(costs, COUNT, PROMPT), Twin(costs)
    now, ticket, version = 0.0, 0, 0
    for arrivals, updated, share in script:
        if updated:
            version += 1
            fleet.update(now, version, stall, recompute)
            twin.update(now, version, stall, recompute)
        if arrivals:
            engines, lengths = (list(column) for column in zip(*arrivals, strict=True))
            tickets = list(range(ticket, ticket + len(arrivals)))
            ticket += len(arrivals)
            fleet.arrive(now, engines, lengths, tickets, [number // 2 for number in tickets])
            for index, length, number in zip(engines, lengths, tickets, strict=True):
                twin.arrive(now, index, length, number)
            for index in dict.fromkeys(engines):
                twin.schedule(index)
        fleet.look_ahead(now)
        ended = int(share * len(fleet.coming.times))
        assert listed(fleet, ended) == twin.ends(ended)
        assert fleet.coming.groups == [number // 2 for number in fleet.coming.tickets]
        now = between(fleet, ended, now)
        fleet.settle(ended)
        assert fleet.running.tolist() == [engine.load for engine in twin.engines]
    fleet.look_ahead(now)
    everything = len(fleet.coming.times)
    assert listed(fleet, everything) == twin.ends(everything)


def test_engines_go_on_where_the_fleet_stopped() -> None:
    costs = EngineCosts.linear(0.01, 0.02, slots=64, kv=1e-3, prefill=1e-3)
    fleet = Fleet(costs, COUNT, PROMPT)
    fleet.arrive(0.0, [0, 0, 1, 1, 1], [30, 40, 10, 50, 50], list(range(5)), [0] * 5)
    fleet.update(0.5, 1, 0.1, recompute_kv=True)
    fleet.look_ahead(0.5)
    fleet.settle(1)
    fleet.look_ahead(0.5)
    expected = listed(fleet, 4)
    engines = [Engine(index, costs) for index in range(COUNT)]
    assert sorted(fleet.hand_over(engines)) == [0, 1, 2]
    got = []
    while any(engine.running for engine in engines):
        engine = min(engines, key=Engine.next_completion)
        time = engine.next_completion()
        job = engine.complete(time)
        got.append((time, engine.index, job.ticket, job.spans))
    assert got == expected
    assert engines[2].versions[-1] == 1


def test_a_fleet_without_work_forecasts_nothing_and_forgets_its_marks() -> None:
    fleet = Fleet(EngineCosts.linear(1.0, 0.0, slots=4), COUNT, PROMPT)
    for version in range(1, 9):
        fleet.update(float(version), version, 0.0, recompute_kv=True)
    fleet.look_ahead(9.0)
    assert fleet.coming.times == []
    fleet.arrive(10.0, [1], [5], [0], [0])
    fleet.look_ahead(10.0)
    assert (fleet.coming.times, fleet.spans(0, 1)) == ([15.0], [((8, 0, 5),)])
    assert math.isfinite(fleet.time.max())


def test_each_engine_is_stalled_by_the_caches_that_it_recomputes() -> None:
    fleet = Fleet(EngineCosts((0.0, 1.0, 1.0), kv=0.0, prefill=0.01), 2, 30)
    fleet.arrive(0.0, [0, 0], [10, 10], [0, 1], [0, 0])
    fleet.update(5.6, 1, 0.25, recompute_kv=True)
    assert fleet.time.tolist() == pytest.approx([5.6 + 0.25 + 0.01 * 2 * 35, 5.85])
