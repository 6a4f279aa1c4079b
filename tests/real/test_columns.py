"""From groups to columns: advantages of whole groups, ids, order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from entr_lab.errors import DataError
from entr_lab.objective import Advantage
from entr_lab.real.columns import UpdateColumns

from .fakes import toy_rollouts


def with_rewards(*groups):
    """Groups with these rewards."""
    made = toy_rollouts(groups=len(groups), size=len(groups[0]))
    return [[replace(r, reward=x) for r, x in zip(g, xs, strict=True)] for g, xs in zip(made, groups, strict=True)]


def test_advantages_are_the_groups_own():
    """Centred within each group; Dr. GRPO does not divide."""
    groups = with_rewards([1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0])

    assert UpdateColumns.of(groups, Advantage.DR_GRPO).advantage.tolist() == [0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0]
    grpo = UpdateColumns.of(groups, Advantage.GRPO)
    assert grpo.advantage[0] == pytest.approx(1.5, abs=1e-3)
    assert grpo.zero_variance_frac == 0.5
    assert grpo.group.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_batch_in_any_order_carries_each_sequences_own_values():
    """Columns follow the order of the sequences asked for; context is left out."""
    columns = UpdateColumns.of(toy_rollouts(spread=2, version=4), Advantage.GRPO)
    order = [7, 0, 3]
    n = sum(int(columns.rollouts[i].trainable.sum()) for i in order)
    batch = columns.batch(order, torch.zeros(n), 5)
    names = ("logp_mu", "weight_version", "turn", "group")
    pieces = {name: columns.split(order, getattr(batch, name)) for name in names}

    for place, index in enumerate(order):
        rollout = columns.rollouts[index]
        for name in names[:3]:
            np.testing.assert_array_equal(pieces[name][place], getattr(rollout, name)[rollout.trainable])
        assert set(pieces["group"][place].tolist()) == {index // 4}
    assert torch.unique(batch.sequence).tolist() == sorted(order)
    assert batch.target_version == 5


def test_nothing_to_train_on_is_refused():
    """No rollout, no update."""
    with pytest.raises(DataError, match="at least one rollout"):
        UpdateColumns.of([], Advantage.GRPO)
