"""The trainer against the simulator's call order, micro-batching, several steps, faults, and resume."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from entr_lab.errors import DataError, EngineError
from entr_lab.objective import (
    Anchor,
    Denominator,
    Method,
    Reduction,
    Weight,
    WeightKind,
    decide,
    get_method,
    group_advantage,
    policy_loss,
)
from entr_lab.real.columns import UpdateColumns
from entr_lab.real.config_sections import TrainerConfig
from entr_lab.real.trainer import Trainer
from entr_lab.rules import make_rule
from entr_lab.tokens import TokenBatch

from .fakes import ToyModel, toy_rollouts

METHODS = ("async-grpo", "fixed", "icepop", "kpop", "m2po", "entr", "entr-gini", "entr-outward", "tis", "sync-grpo")


def trainer_of(seed=0, **settings):
    """A trainer on a fresh toy model."""
    return Trainer(ToyModel(seed=seed), TrainerConfig(**{"learning_rate": 1e-2, **settings}))


def gradients(trainer):
    """Gradients before any optimiser step."""
    return {name: p.grad.clone() for name, p in trainer.scorer.model.named_parameters()}


def without_step(trainer):
    """Keep the gradient and do not move, so that both can be looked at."""
    trainer._step = lambda: (float("nan"), False)
    return trainer


def simulated(model, groups, method, target):
    """The simulator's call order on the same tensors: score, batch, decide, loss; of entr_lab.real only the records."""
    rollouts = [rollout for group in groups for rollout in group]
    reward = torch.tensor([rollout.reward for rollout in rollouts], dtype=torch.float64)
    group = torch.tensor([index for index, members in enumerate(groups) for _ in members])
    advantage = group_advantage(method.advantage, reward, group).float()
    columns = {name: [] for name in ("logp_pi", "logp_mu", "entropy_mu", "collision_mu", "advantage", "sequence")}
    columns |= {name: [] for name in ("group", "weight_version", "turn")}
    for index, rollout in enumerate(rollouts):
        ids = torch.from_numpy(np.concatenate([rollout.prompt_ids, rollout.token_ids]).astype(np.int64))
        logp = model(input_ids=ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1].log_softmax(-1)
        chosen = logp.gather(-1, ids[len(rollout.prompt_ids) :, None])[:, 0]
        on = torch.from_numpy(rollout.trainable)
        columns["logp_pi"].append(chosen[on])
        for name in ("logp_mu", "entropy_mu", "collision_mu"):
            columns[name].append(torch.from_numpy(getattr(rollout, name))[on])
        columns["weight_version"].append(torch.from_numpy(rollout.weight_version)[on])
        columns["turn"].append(torch.from_numpy(rollout.turn.astype(np.int64))[on])
        columns["advantage"].append(advantage[index].expand(int(on.sum())))
        columns["sequence"].append(torch.full((int(on.sum()),), index))
        columns["group"].append(torch.full((int(on.sum()),), int(group[index])))
    batch = TokenBatch(target_version=target, **{name: torch.cat(parts) for name, parts in columns.items()})
    return policy_loss(method, batch, decide(method, batch))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("budget", [10_000, 40])
def test_parity_with_the_simulators_order(name, budget):
    """The same tensors give the same mask, loss and gradient, whole and in micro-batches."""
    groups = toy_rollouts(spread=3, version=5)
    method = get_method(name)
    trainer = without_step(trainer_of(micro_batch_tokens=budget))
    trainer.version = 5
    reference = ToyModel()

    step = trainer.update(groups, 5, method)
    expected = simulated(reference, groups, method, 5)
    expected.loss.backward()

    keep = np.concatenate([k[r.trainable] for k, r in zip(step.keep, (r for g in groups for r in g), strict=True)])
    np.testing.assert_array_equal(keep, expected.keep.numpy())
    assert step.metrics["loss"] == pytest.approx(expected.loss.item(), abs=2e-6)
    for name_, gradient in gradients(trainer).items():
        own = dict(reference.named_parameters())[name_].grad
        torch.testing.assert_close(gradient, own, atol=2e-6, rtol=1e-4)


def test_parity_sees_a_mask():
    """The parity above compares masks that drop something; a rule that kept all would prove little."""
    trainer = without_step(trainer_of())
    trainer.version = 5
    for name in ("fixed", "icepop", "kpop", "m2po", "entr", "entr-gini", "entr-outward"):
        step = trainer.update(toy_rollouts(spread=3, version=5), 5, get_method(name))
        assert 0 < step.metrics["masked_frac"] < 1, name


@pytest.mark.parametrize("denominator", [d for d in Denominator if d is not Denominator.CONSTANT])
@pytest.mark.parametrize("name", ["entr", "m2po"])
def test_micro_batches_change_nothing(name, denominator):
    """Mask, loss and gradient are those of the undivided batch under every denominator."""
    groups = toy_rollouts(groups=4)
    method = get_method(name).with_setting(reduction=Reduction(denominator=denominator))
    results = []
    for budget in (10_000, 60, 16):
        trainer = without_step(trainer_of(micro_batch_tokens=budget))
        results.append((trainer.update(groups, 0, method), gradients(trainer)))

    for step, gradient in results[1:]:
        assert step.metrics["loss"] == pytest.approx(results[0][0].metrics["loss"], abs=2e-6)
        for mine, theirs in zip(step.keep, results[0][0].keep, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        for key, value in gradient.items():
            torch.testing.assert_close(value, results[0][1][key], atol=2e-6, rtol=1e-4)


def test_one_forward_pass_per_micro_batch_where_a_rule_needs_no_other_token():
    """Token rules stream; M2PO scores the whole step before its first gradient."""
    groups = toy_rollouts(groups=4)
    counts = {}
    for name in ("entr", "m2po"):
        trainer = trainer_of(micro_batch_tokens=40)
        calls = []
        trainer.scorer.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        trainer.update(groups, 0, get_method(name))
        counts[name] = len(calls)

    assert counts["entr"] > 1
    assert counts["m2po"] == 2 * counts["entr"]


def test_learns_the_rewarded_token():
    """Twenty on-policy updates towards one token raise its probability."""
    model = ToyModel()
    trainer = Trainer(model, TrainerConfig(learning_rate=1e-2))
    before = None
    for _ in range(20):
        groups = toy_rollouts(model=model, version=trainer.version, noise=0.0, seed=trainer.version, context=False)
        groups = [[replace(r, reward=float((r.token_ids == 3).mean())) for r in group] for group in groups]
        trainer.update(groups, trainer.version, get_method("async-grpo"))
        with torch.no_grad():
            now = float(model(input_ids=torch.tensor([[1, 2]])).logits[0, -1].softmax(-1)[3])
        before = now if before is None else before

    assert trainer.version == 20
    assert now > before + 0.05


def test_mini_batches_and_epochs_raise_the_version_each():
    """Two mini-batches and three epochs are six optimiser steps and six versions."""
    trainer = trainer_of(mini_batches=2, epochs=3)
    step = trainer.update(toy_rollouts(groups=4), 0, get_method("entr"))

    assert step.version == trainer.version == 6
    assert all(
        np.isfinite(logp[r.trainable]).all() for logp, r in zip(step.logp_pi, flat(toy_rollouts(groups=4)), strict=True)
    )


def flat(groups):
    """All rollouts in order."""
    return [rollout for group in groups for rollout in group]


def test_first_mini_batch_is_a_batch_of_its_own():
    """The first of two optimiser steps equals an update on the first half of the groups."""
    groups = toy_rollouts(groups=4)
    two, one = trainer_of(mini_batches=2), trainer_of()
    steps = two.update(groups, 0, get_method("entr")), one.update(groups[:2], 0, get_method("entr"))

    for mine, theirs in zip(steps[0].logp_pi[:8], steps[1].logp_pi, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(steps[0].logp_pi[8], trainer_of().update(groups[2:], 0, get_method("entr")).logp_pi[0])


def test_proximal_anchor_is_the_weights_at_the_start_of_the_batch(monkeypatch):
    """In the second epoch the proximal log-probs are still those from before the first step."""
    method = Method(
        name="decoupled", rule=make_rule("icepop"), anchor=Anchor.PROXIMAL, weight=Weight(kind=WeightKind.RATIO)
    )
    groups = toy_rollouts()
    trainer = trainer_of(epochs=2, micro_batch_tokens=40)
    start = trainer.score(flat(groups))
    seen = []
    original = UpdateColumns.batch

    def spy(columns, sequences, logp_pi, target_version, logp_prox=None):
        if logp_prox is not None:
            seen.append((target_version, list(sequences), logp_prox, logp_pi.detach()))
        return original(columns, sequences, logp_pi, target_version, logp_prox)

    monkeypatch.setattr(UpdateColumns, "batch", spy)
    trainer.update(groups, 0, method)
    late = [entry for entry in seen if entry[0] == 1]

    assert late
    for _, sequences, prox, logp in late:
        np.testing.assert_allclose(prox, np.concatenate([start[i] for i in sequences]), atol=1e-5)
        assert float((logp - prox).abs().max()) > 1e-3


def test_unrecorded_tokens_are_dropped_and_stay_in_the_denominator():
    """NaN from an engine neither poisons the gradient nor changes another token's share."""
    groups = toy_rollouts(context=False)
    broken = copy.deepcopy(groups)
    broken[0][0].logp_mu[1] = np.nan
    trainer = without_step(trainer_of())
    step = trainer.update(broken, 0, get_method("async-grpo"))

    assert step.metrics["unrecorded_frac"] == pytest.approx(1 / step.metrics["tokens"])
    assert not step.keep[0][1]
    assert all(torch.isfinite(g).all() for g in gradients(trainer).values())


def test_equal_rewards_give_no_gradient_and_are_counted():
    """A group without variance has advantage zero; its tokens count in the denominator."""
    groups = toy_rollouts(groups=2)
    flat_group = [replace(r, reward=1.0) for r in groups[1]]
    both, alone = without_step(trainer_of()), without_step(trainer_of())
    step = both.update([groups[0], flat_group], 0, get_method("async-grpo"))
    single = alone.update([groups[0]], 0, get_method("async-grpo"))

    assert step.metrics["zero_variance_frac"] == 0.5
    share = single.metrics["tokens"] / step.metrics["tokens"]
    for name, gradient in gradients(both).items():
        torch.testing.assert_close(gradient, share * gradients(alone)[name], atol=1e-6, rtol=1e-4)


def test_a_gradient_that_is_not_finite_is_skipped_then_refused():
    """Weights stay what they were; three in a row stop the run with one sentence."""
    trainer = trainer_of()
    groups = toy_rollouts()
    weights = trainer.weights()
    handle = trainer.scorer.model.lm_head.weight.register_hook(lambda g: g * float("nan"))
    step = trainer.update(groups, 0, get_method("entr"))

    assert step.metrics["step_skipped"] == 1
    assert trainer.version == 1
    assert all(torch.equal(value, weights[name]) for name, value in trainer.weights().items())
    trainer.update(groups, 1, get_method("entr"))
    with pytest.raises(EngineError, match="3 optimiser steps in a row"):
        trainer.update(groups, 2, get_method("entr"))
    handle.remove()


def test_wrong_target_version_is_refused():
    """A lost or doubled update must not pass in silence."""
    with pytest.raises(EngineError, match="starts from version 3"):
        trainer_of().update(toy_rollouts(), 3, get_method("entr"))


def test_rewards_that_are_not_numbers_are_refused():
    """One NaN reward would make every advantage of its group NaN."""
    groups = toy_rollouts()
    groups[1][0] = replace(groups[1][0], reward=float("nan"))
    with pytest.raises(DataError, match="sample-1"):
        trainer_of().update(groups, 0, get_method("entr"))


def test_state_round_trip_continues_bit_for_bit():
    """A restored trainer makes the same next update as the one that was saved."""
    first = trainer_of()
    first.update(toy_rollouts(seed=1), 0, get_method("entr"))
    second = trainer_of(seed=9)
    second.load_state(*copy.deepcopy(first.state()))
    for trainer in (first, second):
        trainer.update(toy_rollouts(seed=2, version=1), 1, get_method("entr"))

    assert first.version == second.version == 2
    for name, value in first.weights().items():
        torch.testing.assert_close(second.weights()[name], value, atol=0, rtol=0)


def test_foreign_state_is_refused():
    """Weights of another architecture name what does not fit."""
    weights, optimizer, counters = trainer_of().state()
    with pytest.raises(EngineError, match="do not fit"):
        trainer_of().load_state({**weights, "extra": torch.zeros(1)}, optimizer, counters)
    weights["lm_head.weight"] = torch.zeros(3, 3)
    with pytest.raises(EngineError, match="lm_head"):
        trainer_of().load_state(weights, optimizer, counters)


def test_warm_up_is_linear():
    """The n-th of w warm-up steps has n/w of the learning rate."""
    trainer = trainer_of(warmup_steps=4)
    rates = [trainer.update(toy_rollouts(version=v), v, get_method("entr")).metrics["learning_rate"] for v in range(5)]

    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01])


def test_published_weights_do_not_change_afterwards():
    """What was handed out is a copy; the next step must not write into it."""
    trainer = trainer_of()
    weights = trainer.weights()
    before = {name: value.clone() for name, value in weights.items()}
    trainer.update(toy_rollouts(), 0, get_method("entr"))

    assert all(torch.equal(weights[name], value) for name, value in before.items())
