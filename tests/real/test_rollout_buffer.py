"""The buffer keeps what the pipeline counts, forgets what is over, and survives storage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from entr_lab.errors import DataError
from entr_lab.pipeline import Batch, Group, Prompt
from entr_lab.real.rollout_buffer import RolloutBuffer

from .fakes import toy_rollouts


def filled() -> tuple[RolloutBuffer, list[list[Any]]]:
    rollouts = toy_rollouts(groups=2, size=3)
    buffer = RolloutBuffer()
    for group, members in enumerate(rollouts):
        for index, rollout in enumerate(members):
            buffer.put(group, 10 * group + index, rollout)
    return buffer, rollouts


def test_a_batch_has_the_rollouts_in_the_order_of_finishing() -> None:
    buffer, rollouts = filled()
    group = Group(1, Prompt("p"), 3, 0.0, done=[SimpleNamespace(ticket=12), SimpleNamespace(ticket=10)])  # type: ignore[list-item]
    ((first, second),) = buffer.batch(Batch(0, 0, (group,)))
    assert first is rollouts[1][2]
    assert second is rollouts[1][0]


def test_what_is_over_is_forgotten_with_all_its_rollouts() -> None:
    buffer, _ = filled()
    buffer.closed(Group(0, Prompt("p"), 3, 0.0), None)
    assert len(buffer) == 3
    buffer.closed(Group(0, Prompt("p"), 3, 0.0), None)
    assert len(buffer) == 3


def test_storage_keeps_group_ticket_and_tokens() -> None:
    buffer, _ = filled()
    tensors, places = buffer.store()
    again, back = RolloutBuffer.restore(tensors, places).store()
    assert back == places == [[0, 0], [0, 1], [0, 2], [1, 10], [1, 11], [1, 12]]
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(again[name].numpy(), tensor.numpy())


def test_rollouts_without_tickets_are_refused() -> None:
    tensors, places = filled()[0].store()
    with pytest.raises(DataError, match="6 rollouts for 5 tickets"):
        RolloutBuffer.restore(tensors, places[:-1])
