"""The base policy: it approaches the teacher, is reproducible, and starts where the measured tables start."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.sim.policy import Folded, Weights, fold, forward
from entr_lab.sim.rollouts import Sampler
from entr_lab.sim.scenario import Scenario
from entr_lab.sim.tasks import Episodes
from entr_lab.sim.warm_start import WarmStart, warm_start

SCENARIO = Scenario()


def test_short_warm_start_is_reproducible_and_differs_by_seed() -> None:
    settings, task, shape = WarmStart(steps=3), SCENARIO.task, SCENARIO.shape
    first, again, other = (warm_start(settings, shape, task.world(seed), seed) for seed in (501, 501, 502))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not np.array_equal(first.numpy(), shape.initial(501)), "it trained"


def test_no_steps_is_the_initial_policy() -> None:
    flat = warm_start(WarmStart(steps=0), SCENARIO.shape, SCENARIO.task.world(1), 1)
    np.testing.assert_array_equal(flat.numpy(), SCENARIO.shape.initial(1))


def test_base_policy_starts_near_reward_one_half_and_entropy_of_0_6() -> None:
    """Measured on other seeds: reward .45–.52, H .59. A teacher that is followed exactly gives .495 (see below)."""
    seeds, rollouts, task, shape = (503, 504), 1024, SCENARIO.task, SCENARIO.shape
    starts = [warm_start(SCENARIO.warm_start, shape, task.world(seed), seed) for seed in seeds]
    ring = Folded.empty(shape, 1, len(seeds))
    fold(shape, Weights.views(shape, torch.stack(starts)), ring.at(0))
    rng = np.random.default_rng(0)
    size = (len(seeds), rollouts)
    episodes = Episodes(
        task,
        np.stack([task.world(seed).right_tool for seed in seeds]),
        rng.integers(0, 10, (*size, task.turns)),
        rng.integers(0, 10, (*size, task.turns)),
        rng.random((*size, task.horizon)) < task.tolerance,
    )
    uniforms = 1 - rng.random((task.horizon, *size), dtype=np.float32)
    slots = np.zeros((1, task.horizon), dtype=np.int64)
    got = Sampler(shape, len(seeds), rollouts, task.horizon).sample(ring, slots, episodes, uniforms, None)
    # The right tool (.7·.6 + .3·.1 = .45), or a lucky hint (.55/10); 48 tokens err with .4 %, one in ten is fatal.
    assert episodes.reward().mean() == pytest.approx((0.45 + 0.055) * (1 - 0.0004 * 48), abs=0.05)
    assert float(got.entropy.mean()) == pytest.approx(0.59, abs=0.04)
    assert 0.5 < float((got.entropy < 0.1).float().mean()) < 0.65
    kept = forward(ring.at(0).at(0), got.rows[0, :64].flatten(0, 1)).shifted.softmax(-1)
    assert float(kept.max(-1).values.median()) > 0.98


@pytest.mark.parametrize("bad", [{"steps": -1}, {"tokens": 0}, {"first_rate": -1.0}])
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(RangeError):
        WarmStart(**bad)  # type: ignore[arg-type]
