"""Group advantages against loops, and what must be exactly zero."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ShapeError
from entr_lab.objective import Advantage, dr_grpo_advantage, group_advantage, grpo_advantage
from tests import reference

rewards = st.lists(st.tuples(st.floats(-2.0, 2.0, width=32), st.integers(0, 3)), min_size=1, max_size=12)


@given(rewards)
def test_equals_the_naive_twin(pairs: list[tuple[float, int]]) -> None:
    reward, group = [value for value, _ in pairs], [ident for _, ident in pairs]
    tensors = torch.tensor(reward, dtype=torch.float64), torch.tensor(group)
    for kind, centre_only in ((Advantage.GRPO, False), (Advantage.DR_GRPO, True)):
        expected = reference.grpo_advantage(reward, group, eps=1e-4, centre_only=centre_only)
        assert group_advantage(kind, *tensors).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_worked_example() -> None:
    reward = torch.tensor([1.0, 0.0, 0.0, 5.0], dtype=torch.float64)
    group = torch.tensor([7, 7, 7, 2])
    deviation = (1.0 / 3.0) ** 0.5  # sample deviation of (1, 0, 0)
    expected = [2 / 3 / (deviation + 1e-4), -1 / 3 / (deviation + 1e-4), -1 / 3 / (deviation + 1e-4), 0.0]
    assert grpo_advantage(reward, group).tolist() == pytest.approx(expected)
    assert dr_grpo_advantage(reward, group).tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0.0])


@pytest.mark.parametrize("kind", list(Advantage))
@pytest.mark.parametrize("reward", [0.1, 0.7, 1.0 / 3.0, 5.3])
def test_equal_rewards_have_advantage_exactly_zero(kind: Advantage, reward: float) -> None:
    """A rounding error here would have a sign, and so make tokens outward or eligible for M2PO."""
    for size in range(1, 20):
        advantage = group_advantage(kind, torch.full((size,), reward), torch.zeros(size, dtype=torch.int64))
        assert advantage.tolist() == [0.0] * size


def test_advantages_of_a_group_sum_to_zero_and_ignore_other_groups() -> None:
    reward = torch.tensor([0.2, 0.9, 0.4, 100.0], dtype=torch.float64)
    group = torch.tensor([0, 0, 0, 1])
    advantage = grpo_advantage(reward, group)
    assert advantage[:3].sum().item() == pytest.approx(0.0, abs=1e-12)
    assert torch.equal(advantage[:3], grpo_advantage(reward[:3], group[:3]))


def test_group_ids_are_local_to_a_run() -> None:
    reward = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.5, 0.25, 3.0, 3.0]])
    group = torch.tensor([[0, 0, 5, 5], [0, 0, 1, 1]])
    both = grpo_advantage(reward, group)
    for run in range(2):
        torch.testing.assert_close(both[run], grpo_advantage(reward[run], group[run]))


def test_rewards_and_groups_must_pair_up() -> None:
    with pytest.raises(ShapeError, match=r"reward and group must share \[..., B\], got \[3\] and \[2\]"):
        grpo_advantage(torch.zeros(3), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ShapeError, match="reward and group must share"):
        grpo_advantage(torch.tensor(1.0), torch.tensor(0))
