"""Packing of rollouts: every column stays with its rollout, and groups without advantage come last."""

from __future__ import annotations

import numpy as np
import torch

from entr_lab.objective import Advantage
from entr_lab.sim.experience import Experience
from entr_lab.sim.rollouts import Rollouts

RUNS, COUNT, HORIZON, GROUP = 4, 6, 3, 2


def rollouts() -> Rollouts:
    """Numbers that name their own (run, rollout, token)."""
    label = torch.arange(RUNS * COUNT * HORIZON).view(RUNS, COUNT, HORIZON)
    rows = torch.stack([label, label + 1000], dim=-1)
    return Rollouts(label, rows, -0.01 * (label + 1.0), 0.01 * label)


def pack(reward: np.ndarray, versions: np.ndarray) -> Experience:
    error = np.zeros((2, COUNT, HORIZON), dtype=np.float32)
    error[1, 4, 2] = 10.0
    return Experience.of(rollouts(), reward.astype(np.float32), error, versions, GROUP)


def test_groups_without_advantage_come_last_and_nothing_is_torn_apart() -> None:
    reward = np.ones((RUNS, COUNT))
    reward[0] = [0, 0, 1, 1, 0, 1]  # only the last of three groups has a spread
    reward[1] = [0, 1, 1, 1, 1, 0]
    got = pack(reward, np.arange(COUNT * HORIZON).reshape(COUNT, HORIZON))
    assert got.sequence[0].tolist() == [4, 5, 0, 1, 2, 3]
    assert got.sequence[1].tolist() == [0, 1, 4, 5, 2, 3]
    assert got.sequence[2].tolist() == list(range(COUNT))
    for run in range(RUNS):
        order = got.sequence[run].tolist()
        np.testing.assert_array_equal(got.reward[run], reward[run][order])
        np.testing.assert_array_equal(got.group[run], [r // GROUP for r in order])
        expected = torch.cat([rollouts().tokens[run, r] for r in order])
        assert torch.equal(got.tokens[run], expected)
        assert torch.equal(got.rows[run, :, 1], expected + 1000)
        torch.testing.assert_close(got.entropy_mu[run], 0.01 * expected)
        versions = torch.cat([torch.arange(r * HORIZON, (r + 1) * HORIZON) for r in order])
        assert torch.equal(got.weight_version[run], versions)


def test_recording_error_belongs_to_the_seed_whatever_the_method() -> None:
    """Runs are method by method: runs 1 and 3 have the second seed; its one huge error records probability 1."""
    got = pack(np.ones((RUNS, COUNT)), np.zeros((1, HORIZON), dtype=np.int64))
    certain = got.logp_mu == 0
    assert certain.nonzero().tolist() == [[1, 4 * HORIZON + 2], [3, 4 * HORIZON + 2]]


def test_batch_repeats_each_rollouts_advantage_over_its_tokens() -> None:
    reward = np.tile([0, 1, 0, 0, 1, 1], (RUNS, 1))
    got = pack(reward, np.zeros((1, HORIZON), dtype=np.int64)).runs(slice(1, 3))
    batch = got.batch(torch.zeros(2, COUNT * HORIZON), 5, Advantage.DR_GRPO)
    assert batch.logp_pi.shape == (2, COUNT * HORIZON)
    assert batch.advantage[0].tolist() == [-0.5] * HORIZON + [0.5] * HORIZON + [0.0] * (4 * HORIZON)
    assert batch.sequence[0, ::HORIZON].tolist() == list(range(COUNT))
    assert batch.group[0, ::HORIZON].tolist() == [0, 0, 1, 1, 2, 2]
