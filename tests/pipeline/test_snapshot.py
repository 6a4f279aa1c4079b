"""Snapshots: plain data, independent of what goes on, and refused when damaged."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from entr_lab.errors import DataError
from entr_lab.pipeline import Admission, Pipeline, VersionSpan
from tests.pipeline.helpers import finish, make, start, take


def busy() -> Pipeline:
    """A bit of everything: training, finished, open, generated, waiting, unopened."""
    pipeline = make(Admission.asynchronous(4, 2), prompts=20, group_size=2, batch_groups=2)
    rollouts = start(pipeline, 11)
    for rollout in rollouts[:6]:
        finish(pipeline, rollout)
    take(pipeline)
    pipeline.generated(rollouts[6].ticket, [VersionSpan(0, 0, 3)], 1.0)
    pipeline.fail(rollouts[7].ticket, 1.0)
    pipeline.progress(rollouts[8].ticket, [VersionSpan(0, 0, 3)])
    return pipeline


def test_a_snapshot_is_json_and_restores_to_itself() -> None:
    data = busy().snapshot()
    again = Pipeline.restore(json.loads(json.dumps(data)))
    again.audit()
    assert json.dumps(again.snapshot()) == json.dumps(data)


def test_a_snapshot_shares_nothing_with_the_pipeline() -> None:
    pipeline = busy()
    data = pipeline.snapshot()
    before = copy.deepcopy(data)
    pipeline.publish(1, 0.0)
    pipeline.lose("w", 0.0)
    pipeline.join("v", 1)
    start(pipeline, 9, worker="v")
    assert data == before


@pytest.mark.parametrize("key", sorted(busy().snapshot()))
def test_a_missing_part_is_refused(key: str) -> None:
    data = busy().snapshot()
    del data[key]
    with pytest.raises(DataError):
        Pipeline.restore(data)


@pytest.mark.parametrize("key", ["flight", "open", "ready", "training", "prompts", "workers", "counts", "waiting"])
@pytest.mark.parametrize("value", [None, [], {}, 3, "x"])
def test_a_damaged_part_is_refused(key: str, value: Any) -> None:
    data = busy().snapshot()
    if data[key] == value:
        return
    data[key] = value
    with pytest.raises(DataError, match="snapshot"):
        Pipeline.restore(data)


@pytest.mark.parametrize("data", [None, [], {}, {"schema": 99}])
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match="no pipeline snapshot of schema"):
        Pipeline.restore(data)
