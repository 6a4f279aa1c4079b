"""Who gets work: always the least loaded engine, against a search over all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_balance import Balance
from entr_lab.sim.time_costs import EngineCosts

COSTS = EngineCosts.linear(1.0, 0.0, slots=5)


def fill(engine: Engine, count: int) -> None:
    for ticket in range(count):
        engine.arrive(0.0, Rollout(ticket, 0, 10 + ticket, 1, 0, 0.0, 0.0))


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(["pick", "end", "refuse", "down", "up"]), st.integers(0, 9)), max_size=30),
)
def test_the_least_loaded_engine_is_next_whatever_has_happened(loads: list[int], events: list[tuple[str, int]]) -> None:
    engines = [Engine(index, COSTS) for index in range(len(loads))]
    for engine, load in zip(engines, loads, strict=True):
        fill(engine, load)
    balance, refused = Balance(engines, slots=5), set[int]()
    for kind, number in events:
        index = number % len(engines)
        if kind == "pick":
            got = balance.pick(number)
            twin = [engine.load for engine in engines]
            expected: list[int] = []
            able = [i for i in range(len(engines)) if i not in refused and i not in balance.away]
            while able and len(expected) < number:
                least = min(able, key=lambda i: (twin[i], i))
                if twin[least] >= 5:
                    break
                twin[least] += 1
                expected.append(least)
            assert got == expected
            assert balance.full == (bool(able) and len(expected) < number)
            kept = got[: len(got) // 2]  # the pipeline said no to the others
            balance.give_back(got[len(kept) :])
            refused -= set(got[len(kept) :])
            for place in kept:
                fill(engines[place], 1)
        elif kind == "end" and engines[index].running:
            engines[index].complete(engines[index].next_completion())
            balance.changed.add(index)
            refused.discard(index)
        elif kind == "refuse":
            balance.close(index)
            refused.add(index)
        elif kind == "down":
            balance.away.add(index)
            balance.changed.add(index)
        elif kind == "up" and index in balance.away:
            balance.away.remove(index)
            balance.changed.add(index)
            refused.discard(index)


def test_engines_that_run_many_take_a_few_at_a_time() -> None:
    engines = [Engine(index, EngineCosts.linear(1.0, 0.0, slots=64)) for index in range(2)]
    fill(engines[0], 40)
    fill(engines[1], 41)
    balance = Balance(engines, slots=64)
    assert balance.pick(4) == [0, 0, 0, 1, 1, 1]  # 1 + 40 // 16 each
