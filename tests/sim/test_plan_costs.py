"""Costs of a plan: measured ones are taken as they are, chips through the roofline and the scales."""

from __future__ import annotations

import numpy as np
import pytest

from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.plan_costs import costs_of, mean_context
from tests.sim.test_plan_config import BASE, changed


def test_measured_costs_are_taken_as_they_are_and_the_trainer_shares_its_gpus() -> None:
    engine, trainer, sync = costs_of(parse_plan(BASE))
    assert engine.base == pytest.approx([0.01 + 0.001 * batch for batch in range(5)])
    assert (trainer.fixed, trainer.per_token) == (0.2, 1e-3 / 4)
    assert (sync.transfer, sync.recompute_kv) == (0.1, True)


def test_scales_multiply_decode_and_trainer_alone() -> None:
    chips = {"costs": None, "hardware": {"gpu": "H100", "model": "qwen3-8b"}}
    plain = costs_of(parse_plan(BASE | chips))
    scaled = costs_of(
        parse_plan(BASE | chips | {"hardware": chips["hardware"] | {"decode_scale": 2, "trainer_scale": 3}})
    )
    assert scaled[0].base == pytest.approx([2 * seconds for seconds in plain[0].base])
    assert (scaled[0].kv, scaled[0].prefill) == pytest.approx((2 * plain[0].kv, 2 * plain[0].prefill))
    assert scaled[1].per_token == pytest.approx(3 * plain[1].per_token)
    assert scaled[2] == plain[2]


def test_the_mean_context_is_that_of_a_sequence_seen_at_random() -> None:
    """Twin: pick a trajectory with probability ∝ its length, and a uniform position in it."""
    plan = parse_plan(changed(lengths={"mean": 400, "cv": 1.2, "cap": 3000, "prompt": 25}))
    rng = np.random.default_rng(0)
    lengths = plan.workload().lengths_of(rng, 100_000, 4).ravel().astype(float)
    picked = rng.choice(lengths, 200_000, p=lengths / lengths.sum())
    assert mean_context(plan) == pytest.approx(25 + (picked * rng.random(picked.size)).mean(), rel=0.02)
