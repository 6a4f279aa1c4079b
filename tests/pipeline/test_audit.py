"""The audit notices what was lost or counted twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.state import State
from tests.pipeline.test_snapshot import busy


def lose_a_group(state: State) -> None:
    del state.open[next(iter(state.open))]


def forget_a_ticket(state: State) -> None:
    del state.flight[next(iter(state.flight))]


def train_twice(state: State) -> None:
    group = state.training.groups[0]  # type: ignore[union-attr]
    state.ready[group.id] = group


def count_twice(state: State) -> None:
    state.counts.finished += 1


def lose_a_prompt(state: State) -> None:
    state.prompts.popleft()


def forget_who_waits(state: State) -> None:
    state.waiting.clear()


def break_a_floor(state: State) -> None:
    next(iter(state.ready.values())).floor = 9


def break_an_index(state: State) -> None:
    state.holding[5] = 1


def start_twice(state: State) -> None:
    next(g for g in state.open.values() if g.waiting).waiting.append((0, 1))


DAMAGE = [
    *(lose_a_group, forget_a_ticket, train_twice, count_twice, lose_a_prompt),
    *(forget_who_waits, break_a_floor, break_an_index, start_twice),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
def test_damage_is_noticed(damage: Callable[[State], None]) -> None:
    pipeline = busy()
    pipeline.audit()
    damage(pipeline._state)
    with pytest.raises(ProtocolError, match="do not add up"):
        pipeline.audit()
