"""Settings: what is refused, and the way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from entr_lab.errors import ConfigError, RangeError
from entr_lab.pipeline.admission import Admission, OnUpdate, Policy
from entr_lab.pipeline.config import Order, PipelineConfig

FULL = PipelineConfig(
    admission=Admission.asynchronous(4, 2, policy=Policy.REQUEUE, on_update=OnUpdate.ABORT),
    batch_groups=8,
    group_size=4,
    min_rollouts=2,
    order=Order.FRESHEST,
    drop_zero_variance=True,
    deadline=1.5,
    max_in_flight=9,
    buffer_groups=20,
)


def test_settings_survive_json() -> None:
    again = PipelineConfig.from_json(json.loads(json.dumps(FULL.to_json())))
    assert again == FULL
    assert isinstance(again.admission.policy, Policy)


@pytest.mark.parametrize("change", [{"batch_groups": None}, {"order": "best"}, {"surprise": 1}, {"admission": 3}])
def test_damaged_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PipelineConfig.from_json({**FULL.to_json(), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_groups": 0}, "batch_groups"),
        ({"group_size": 1.5}, "group_size"),
        ({"min_rollouts": 5}, r"min_rollouts must lie in \[1, 4\]"),
        ({"min_rollouts": 0}, "min_rollouts"),
        ({"deadline": 0.0}, "deadline"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"first_version": -1}, "first_version"),
    ],
)
def test_numbers_out_of_range_are_named(change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"admission": Admission.sync(), "batch_groups": 2, "group_size": 4, **change}
    with pytest.raises(RangeError, match=message):
        PipelineConfig(**settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buffer_groups": 1}, "raise buffer_groups to 2"),
        ({"group_size": 1, "drop_zero_variance": True}, "drops every group of size 1"),
        ({"admission": Admission.exact(1, 1), "order": Order.CUSTOM}, "use order fifo"),
    ],
)
def test_settings_that_can_never_train_are_refused(change: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"admission": Admission.sync(), "batch_groups": 2, "group_size": 4, **change}
    with pytest.raises(ConfigError, match=message):
        PipelineConfig(**settings)
