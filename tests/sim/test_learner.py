"""Adam against torch's own, the per-run clip, freezing, and the gradient of log π."""

from __future__ import annotations

import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.sim.distinct import DistinctRows
from entr_lab.sim.learner import Adam, AdamSettings, policy_gradient, token_pass
from entr_lab.sim.policy import Folded, PolicyShape


def test_adam_is_torchs_with_a_norm_clip_per_run() -> None:
    torch.manual_seed(1)
    settings = AdamSettings(learning_rate=0.03, clip=1.0)
    start = torch.randn(3, 20, dtype=torch.float64)
    mine = start.clone()
    adam = Adam(settings, mine)
    theirs = [row.clone().requires_grad_() for row in start]
    oracle = [torch.optim.Adam([row], lr=0.03, betas=(0.9, 0.99), eps=1e-8) for row in theirs]
    for step in range(30):
        gradient = torch.randn(3, 20, dtype=torch.float64) * torch.tensor([[0.01], [1.0], [30.0]])
        for row, optimiser, part in zip(theirs, oracle, gradient.clone(), strict=True):
            row.grad = part
            torch.nn.utils.clip_grad_norm_([row], 1.0)
            optimiser.step()
        norm = adam.step(gradient.clone())
        torch.testing.assert_close(norm, gradient.norm(dim=-1))
        for run, row in enumerate(theirs):
            torch.testing.assert_close(mine[run], row.detach(), rtol=1e-9, atol=1e-9, msg=f"step {step}")


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e38])
def test_a_run_that_is_not_finite_is_frozen_and_the_others_do_not_notice(poison: float) -> None:
    torch.manual_seed(2)
    start = torch.randn(3, 5)
    with_failure, without = start.clone(), start.clone()
    failing, healthy = Adam(AdamSettings(), with_failure), Adam(AdamSettings(), without)
    for step in range(4):
        gradient = torch.randn(3, 5)
        healthy.step(gradient.clone())
        if step == 1:
            gradient[1] = poison
            before = with_failure[1].clone()
        failing.step(gradient.clone())
    assert failing.alive.tolist() == [True, False, True]
    assert torch.equal(with_failure[1], before), "frozen at the first bad gradient, for good"
    assert torch.equal(with_failure[[0, 2]], without[[0, 2]])


def test_policy_gradient_is_autograds_and_may_stop_early() -> None:
    torch.manual_seed(3)
    shape = PolicyShape(features=(3, 4), vocabulary=5, embedding=2, hidden=6)
    folded = Folded(*(torch.randn_like(block) for block in Folded.empty(shape, dtype=torch.float64)))
    rows = torch.stack([torch.randint(0, 3, (30,)), 3 + torch.randint(0, 4, (30,))], dim=-1)
    tokens, d_logp = torch.randint(0, 5, (30,)), torch.randn(30, dtype=torch.float64)
    d_logp[20:] = 0.0
    leaves = Folded(*(block.clone().requires_grad_() for block in folded))
    hidden = torch.relu(leaves.table[rows].sum(1))
    logits = torch.relu(hidden @ leaves.w2 + leaves.b2) @ leaves.w3 + leaves.b3
    logp = logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    expected = torch.autograd.grad((logp * d_logp).sum(), list(leaves))
    passed = token_pass(folded, DistinctRows(shape).of(rows), tokens)
    torch.testing.assert_close(passed.logp, logp.detach(), rtol=0, atol=1e-12)
    for count in (30, 20):
        out = Folded(*(torch.full_like(block, torch.nan) for block in folded))
        policy_gradient(folded, tokens, passed, d_logp[:count], out)
        for mine, theirs in zip(out, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    policy_gradient(folded, tokens, passed, d_logp[:0], out)
    assert all(bool((block == 0).all()) for block in out)


@pytest.mark.parametrize("bad", [{"learning_rate": -1.0}, {"beta2": 1.0}, {"clip": 0.0}, {"eps": float("nan")}])
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(RangeError):
        AdamSettings(**bad)
