"""Locked asynchronous behaviours of the learning level. Changing one needs a page in docs/decisions.

 1. Update v starts from version v: the batch's target version is the number of finished updates.
 2. Token t carries version max(0, v − inter − intra + floor((intra+1)t/T)), and is sampled by it.
 3. A synchronous method has lag 0 whatever the scenario's lag, and its ratio is exactly one.
 4. Its rollouts carry the engine's errors all the same: only staleness is taken away.
 5. While every token still comes from version 0, all asynchronous methods of a seed see the same rollouts.
 6. At lag 0 an asynchronous method sees the first rollouts that the synchronous one sees.
 7. log π is the trainer's own, clean and at the target version; log μ is the recorded one.
 8. Advantages are taken per group before the rule, and dropped tokens stay in the denominator.
 9. Evaluations are on-policy and clean, before the first update, every `eval_every`, and after the last.
10. Rules see every token of the update at once, also those of groups without advantage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from entr_lab.objective import Method, get_method, policy_loss
from entr_lab.sim import cohort as cohort_module
from entr_lab.sim.cohort import Cohort
from entr_lab.sim.recording import EngineErrors
from entr_lab.sim.scenario import Scenario
from entr_lab.tokens import TokenBatch
from tests.sim.small import SMALL, with_lag

NAMES = ("async-grpo", "entr", "sync-grpo")
EXACT = EngineErrors(relative=0.0, flip_probability=0.0, recording_error=0.0)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[tuple[TokenBatch, Any]]]]:
    """Every batch that a method's objective was called with, and what came out."""
    batches: dict[str, list[tuple[TokenBatch, Any]]] = {}

    def spy(method: Method, batch: TokenBatch) -> Any:
        outcome = policy_loss(method, batch)
        batches.setdefault(method.name, []).append((batch, outcome))
        return outcome

    monkeypatch.setattr(cohort_module, "policy_loss", spy)
    return batches


def train(scenario: Scenario, seeds: tuple[int, ...] = (611,), names: tuple[str, ...] = NAMES) -> Cohort:
    cohort = Cohort(scenario, [get_method(name) for name in names], seeds)
    list(cohort.train())
    return cohort


def by_rollout(batch: TokenBatch, column: torch.Tensor) -> torch.Tensor:
    """`[R, T]` of the first run, in the order of the rollouts' numbers."""
    rows = column[0].detach().view(-1, SMALL.task.horizon)
    return rows[batch.sequence[0, :: SMALL.task.horizon].argsort()]


def test_1_2_versions(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    train(SMALL)
    horizon = SMALL.task.horizon
    for update, (batch, _) in enumerate(seen["entr"]):
        assert batch.target_version == update
        expected = [max(0, update - 2 - 1 + (2 * t) // horizon) for t in range(horizon)]
        for row in by_rollout(batch, batch.weight_version):
            assert row.tolist() == expected


def test_2_versions_are_what_sampled(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    """With exact recording, log π at update v of a token of version v must equal its log μ, and of older ones not."""
    train(replace(with_lag(0, 3), engine=EXACT, updates=6), names=("async-grpo",))
    batch, _ = seen["async-grpo"][-1]
    fresh = batch.weight_version == 5
    gap = batch.log_ratio.detach().abs()
    assert 0 < int(fresh.sum()) < fresh.numel()
    assert float(gap[fresh].max()) < 1e-4
    assert float(gap[~fresh].max()) > 1e-2


def test_3_4_synchronous(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    train(SMALL)
    for update, (batch, outcome) in enumerate(seen["sync-grpo"]):
        assert bool((batch.weight_version == update).all())
        assert torch.equal(outcome.weight, torch.ones_like(outcome.weight))
        assert float(batch.log_ratio.detach().abs().max()) > 1e-3, "engine errors remain"


def test_5_common_random_numbers(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    train(SMALL)
    for update in range(SMALL.updates):
        one, other = (seen[name][update][0] for name in ("async-grpo", "entr"))
        same = torch.equal(one.logp_mu, other.logp_mu)
        assert same is (update <= SMALL.lag.inter), f"update {update}"


def test_6_no_lag_is_the_synchronous_rollout(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    train(with_lag(0, 0), names=("async-grpo", "sync-grpo"))
    assert torch.equal(seen["async-grpo"][0][0].logp_mu, seen["sync-grpo"][0][0].logp_mu)


def test_7_log_pi_is_clean(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    """At lag 0 with exact recording but noisy logits, δ is the engine's noise and nothing else."""
    flips = EngineErrors(relative=0.0, flip_probability=0.2, recording_error=0.0)
    train(replace(with_lag(0, 0), engine=flips), names=("async-grpo",))
    gap = seen["async-grpo"][2][0].log_ratio.detach().abs()
    assert float((gap < 1e-4).float().mean()) > 0.75
    assert float(gap.max()) > 0.1


def test_8_advantage_and_denominator(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    cohort = train(SMALL, names=("entr",))
    mean_reward = cohort.records()[0].metrics["reward"]
    dropped = 0
    for update, (batch, outcome) in enumerate(seen["entr"]):
        advantage = by_rollout(batch, batch.advantage)[:, 0].view(SMALL.prompts, SMALL.group_size)
        torch.testing.assert_close(advantage.sum(-1), torch.zeros(SMALL.prompts), atol=1e-4, rtol=0)
        assert (float(advantage.abs().max()) > 0) or mean_reward[update] in (0.0, 0.25, 0.5, 0.75, 1.0)
        expected = -(outcome.weight * batch.advantage).sum() / batch.n_tokens
        torch.testing.assert_close(outcome.loss[0].detach(), expected, rtol=1e-4, atol=1e-6)
        dropped += int((~outcome.keep).sum())
    assert dropped > 0


def test_9_evaluations() -> None:
    """The first one is taken before any update: equal for every method, and independent of the engine's errors."""
    noisy, exact = (train(replace(SMALL, engine=engine)).records() for engine in (SMALL.engine, EXACT))
    assert len({record.eval_reward[0] for record in (*noisy, *exact)}) == 1
    assert all(record.eval_updates.tolist() == [0, 3, 6, 7] for record in noisy)
    changed = [record.eval_entropy[0] != record.eval_entropy[-1] for record in noisy]
    assert np.all(changed)


def test_10_rules_see_everything(seen: dict[str, list[tuple[TokenBatch, Any]]]) -> None:
    train(SMALL, names=("m2po",))
    tokens = SMALL.rollouts * SMALL.task.horizon
    still = 0
    for batch, outcome in seen["m2po"]:
        assert batch.n_tokens == outcome.keep.shape[-1] == tokens
        still += int((batch.advantage == 0).sum())
    assert still > 0, "some group had no advantage"
