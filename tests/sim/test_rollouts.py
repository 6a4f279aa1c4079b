"""Sampling: the distribution, its recorded log-probability and entropy, versions, and independence of the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entr_lab.sim.lag import LagTable
from entr_lab.sim.policy import Folded, PolicyShape, Weights, fold, forward
from entr_lab.sim.recording import EngineErrors, behaviour_noise
from entr_lab.sim.rollouts import Rollouts, Sampler
from entr_lab.sim.streams import Purpose, stream
from entr_lab.sim.tasks import Episodes, ToolCallTask

TASK = ToolCallTask(turns=1)
SHAPE = PolicyShape(features=TASK.feature_sizes, vocabulary=TASK.vocabulary)
HORIZON = TASK.horizon


def ring_of(seeds: list[int], slots: int = 1) -> Folded:
    """Random policies `[slots, runs]`; slot s of run i is drawn from (seed_i, s) alone."""
    ring = Folded.empty(SHAPE, slots, len(seeds))
    for slot in range(slots):
        flat = torch.from_numpy(np.stack([SHAPE.initial(1000 * slot + seed) for seed in seeds]))
        fold(SHAPE, Weights.views(SHAPE, flat), ring.at(slot))
    return ring


def sample(
    seeds: list[int], rollouts: int, *, ring: Folded | None = None, slots: np.ndarray | None = None, noisy: bool = True
) -> Rollouts:
    digits = np.stack([stream(s, Purpose.PROMPTS).integers(0, 10, (rollouts, 1)) for s in seeds])
    right = np.stack([TASK.world(s).right_tool for s in seeds])
    forgiven = np.ones((len(seeds), rollouts, HORIZON), dtype=bool)
    uniforms = [1 - stream(s, Purpose.SAMPLING).random((HORIZON, rollouts), dtype=np.float32) for s in seeds]
    errors = EngineErrors(flip_probability=0.3)
    noise = behaviour_noise(errors, tuple(seeds), 0, HORIZON, rollouts, TASK.vocabulary) if noisy else None
    sampler = Sampler(SHAPE, len(seeds), rollouts, HORIZON)
    episodes = Episodes(TASK, right, digits, digits, forgiven)
    slots = np.zeros((1, HORIZON), dtype=np.int64) if slots is None else slots
    return sampler.sample(ring or ring_of(seeds), slots, episodes, np.stack(uniforms, axis=1), noise)


def test_logp_and_entropy_are_those_of_the_policy_at_the_recorded_rows() -> None:
    """Without engine errors, recompute the full distribution in float64 from the rows."""
    got, folded = sample([3], 50, noisy=False), ring_of([3]).at(0).at(0)
    logits = forward(folded, got.rows[0].flatten(0, 1)).shifted.double()
    logp = logits.log_softmax(-1)
    chosen = logp.gather(-1, got.tokens[0].view(-1, 1))[:, 0].view(50, HORIZON)
    entropy = -(logp.exp() * logp).sum(-1).view(50, HORIZON)
    torch.testing.assert_close(got.logp[0].double(), chosen, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.entropy[0].double(), entropy, rtol=1e-4, atol=1e-5)


def test_tokens_follow_the_stated_distribution() -> None:
    """First token, one context for all rollouts: χ² of 40,000 draws against the policy's own probabilities."""
    count = 40_000
    got, folded = sample([5], count, noisy=False), ring_of([5]).at(0).at(0)
    digit = got.rows[0, :, 0, 3] - SHAPE.offsets[3]
    statistic, cells = 0.0, 0
    for d in range(10):
        here = digit == d
        rows = got.rows[0, here][:1, 0]
        expected = forward(folded, rows).shifted.double().softmax(-1)[0] * int(here.sum())
        observed = torch.bincount(got.tokens[0, here, 0], minlength=TASK.vocabulary).double()
        common = expected > 5
        statistic += float(((observed - expected).square() / expected)[common].sum())
        cells += int(common.sum())
    assert cells > 40
    assert statistic < cells + 4 * (2 * cells) ** 0.5


@pytest.mark.parametrize("seeds", [[4], [4, 9], [8, 4, 1], [4, 2, 3, 7, 6]])
def test_a_run_is_bitwise_the_same_in_any_batch(seeds: list[int]) -> None:
    alone, together = sample([4], 64), sample(seeds, 64)
    place = seeds.index(4)
    for name in ("tokens", "logp", "entropy"):
        assert torch.equal(getattr(together, name)[place], getattr(alone, name)[0]), name


def test_each_token_is_sampled_by_its_own_version() -> None:
    """Ragged lags: rollouts of different versions side by side equal rollouts of one version each, to rounding."""
    ring = ring_of([2], slots=3)
    table = LagTable(np.random.default_rng(0).integers(0, 3, (8, HORIZON)))
    slots = table.versions(2, 8)
    got = sample([2], 8, ring=ring, slots=slots, noisy=False)
    for r in range(8):
        for t in range(HORIZON):
            folded = ring.at(int(slots[r, t])).at(0)
            logp = forward(folded, got.rows[0, r, t][None]).shifted.log_softmax(-1)[0]
            torch.testing.assert_close(got.logp[0, r, t], logp[got.tokens[0, r, t]], rtol=1e-4, atol=1e-4)


def test_deterministic_policy_has_zero_entropy_and_certain_tokens() -> None:
    ring = ring_of([1])
    for block in ring[1:]:
        block.zero_()
    ring.b3[..., 7] = 200.0
    got = sample([1], 16, ring=ring, noisy=False)
    assert bool((got.tokens == 7).all())
    assert bool((got.logp == 0).all())
    assert bool((got.entropy == 0).all())
