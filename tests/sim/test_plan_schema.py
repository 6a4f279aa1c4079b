"""The sections of a plan: laws of length, what a batch and a split come to, that nothing can be changed later."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from entr_lab.sim.lengths import Empirical, Fixed, LogNormal, ParetoTail
from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.plan_schema import Lengths, Plan
from tests.sim.test_plan_config import BASE


@pytest.mark.parametrize(
    ("data", "law"),
    [
        ({"kind": "fixed", "mean": 7}, Fixed(7)),
        ({"kind": "log-normal", "mean": 7, "cv": 2}, LogNormal(7, 2)),
        ({"kind": "pareto", "mean": 7, "tail": 1.5}, ParetoTail(7, 1.5)),
        ({"kind": "empirical", "values": [3, 1]}, Empirical((1, 3))),
    ],
)
def test_every_kind_of_length_is_its_law(data, law) -> None:
    assert Lengths.model_validate({"cap": 100} | data).law() == law


def test_a_plan_survives_json() -> None:
    plan = parse_plan(BASE)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse_plan(BASE).gpus = 3  # type: ignore[misc]


def test_the_workload_carries_lengths_and_turns() -> None:
    plan = parse_plan(BASE | {"tools": {"turns": 2.0, "max_turns": 4}})
    workload = plan.workload()
    assert (workload.cap, workload.turns, workload.max_turns) == (90, 2.0, 4)
    assert workload.group_correlation == plan.lengths.group_correlation
