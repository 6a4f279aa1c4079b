"""The loss: naive twin, finite differences, hand gradients, infinities among the dropped, splits, `entr-outward`."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from entr_lab.errors import ShapeError
from entr_lab.objective import (
    METHODS,
    Anchor,
    Decision,
    Denominator,
    Method,
    PlainRatio,
    PpoClip,
    Reduction,
    Surrogate,
    Weight,
    WeightKind,
    decide,
    decide_micro_batches,
    get_method,
    policy_loss,
)
from entr_lab.rules import Entr, Fixed, KeepAll
from entr_lab.testing import adversarial_batch
from entr_lab.testing.batches import cast, split
from entr_lab.tokens import TokenBatch
from tests import reference
from tests.strategies import batches, build, from_ratios, with_gradient

SURROGATES: list[Surrogate] = [PlainRatio(), PpoClip(), PpoClip(dual_clip=3.0)]
WEIGHTS = [
    Weight(),
    Weight(kind=WeightKind.NONE),
    Weight(kind=WeightKind.TRUNCATED, cap=1.5),
    Weight(kind=WeightKind.BOUNDARY),
]
REDUCTIONS = [
    Reduction(denominator=kind, constant=7.0 if kind is Denominator.CONSTANT else None) for kind in Denominator
]
ANCHORS = [Anchor.BEHAVIOUR, Anchor.PROXIMAL]
COMBINATIONS = list(itertools.product(SURROGATES, WEIGHTS, REDUCTIONS))
every_combination = pytest.mark.parametrize(
    ("surrogate", "weight", "reduction"),
    COMBINATIONS,
    ids=[f"{s.name}-{getattr(s, 'dual_clip', '')}-{w.kind}-{r.denominator}" for s, w, r in COMBINATIONS],
)


def _gradient(method: Method, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Return loss and its gradient in log π."""
    leaf = with_gradient(batch)
    loss = policy_loss(method, leaf).loss
    (gradient,) = torch.autograd.grad(loss.sum(), leaf.logp_pi)
    return loss.detach(), gradient


def _clip(surrogate: Surrogate) -> dict[str, float]:
    """Return the hyper-parameters of a clip, or nothing."""
    names = ("eps_low", "eps_high", "dual_clip")
    return {name: getattr(surrogate, name) for name in names if hasattr(surrogate, name)}


def _naive(method: Method, batch: TokenBatch) -> list[float]:
    """Return each token's contribution to minus the loss, from the printed formulas."""
    rows, hyper = reference.rows(batch), method.rule
    keep = decide(method, batch).keep.tolist()
    coefficient = reference.coefficients(
        method.reduction.denominator.value, batch.sequence.tolist(), keep, method.reduction.constant
    )
    prox = batch.logp_prox.tolist() if batch.logp_prox is not None else [math.nan] * len(rows)
    clip, found = _clip(method.surrogate), []
    for index, row in enumerate(rows):
        if not keep[index]:
            found.append(0.0)
            continue
        behaviour = method.anchor is Anchor.BEHAVIOUR
        ratio = math.exp(row.delta if behaviour else row.logp_pi - prox[index])
        correction = 1.0 if behaviour else math.exp(prox[index] - row.logp_mu)
        mismatch = ratio if behaviour else correction
        cap = {
            WeightKind.TRUNCATED: method.weight.cap,
            WeightKind.BOUNDARY: math.exp(math.sqrt(getattr(hyper, "tau", 1.0) * (row.entropy + 0.01))),
        }.get(method.weight.kind, math.inf)
        factor = 1.0 if method.weight.kind is WeightKind.NONE else correction * min(1.0, cap / mismatch)
        value = reference.surrogate(method.surrogate.name, ratio, row.advantage, clip)
        found.append(coefficient[index] * factor * value)
    return found


def _batch(seed: int = 0, n_tokens: int = 24) -> TokenBatch:
    """A float64 batch with spoiled records among the dropped tokens, and δ where every branch is taken."""
    batch = cast(adversarial_batch(seed, n_tokens), torch.float64)
    generator = torch.Generator().manual_seed(seed)
    delta = torch.rand(n_tokens, generator=generator).double() * 3.0 - 1.5
    return replace(batch, logp_pi=torch.where(batch.logp_pi.isfinite(), batch.logp_mu + delta, batch.logp_pi))


@every_combination
@pytest.mark.parametrize("anchor", ANCHORS)
def test_loss_equals_the_naive_twin(surrogate: Surrogate, weight: Weight, reduction: Reduction, anchor: Anchor) -> None:
    method = Method(name="x", rule=Entr(), anchor=anchor, weight=weight, surrogate=surrogate, reduction=reduction)
    batch = _batch()
    prox = torch.where(batch.valid & batch.log_ratio.isfinite(), batch.logp_mu + 0.4 * batch.log_ratio, -1.0)
    batch = replace(batch, logp_prox=prox)
    assert policy_loss(method, batch).loss.item() == pytest.approx(-math.fsum(_naive(method, batch)), rel=1e-6)


@every_combination
def test_gradient_equals_finite_differences_with_the_decision_held(
    surrogate: Surrogate, weight: Weight, reduction: Reduction
) -> None:
    """The weight is constant for the gradient, so it is held at its value while log π moves."""
    method = Method(name="x", rule=Entr(), weight=weight, surrogate=surrogate, reduction=reduction)
    batch = _batch(1, 60)
    decision = decide(method, batch)
    loss, gradient = _gradient(method, batch)
    assert loss.isfinite()
    assert gradient.isfinite().all()
    assert (gradient[~decision.keep] == 0).all()
    assert (~decision.keep).sum() > 3
    kept_rows = [index for index in decision.keep.nonzero()[:, 0].tolist() if batch.advantage[index] != 0]
    assert len(kept_rows) > 5
    step, clip = 1e-6, _clip(surrogate)
    weight_held, rows = policy_loss(method, batch).weight, reference.rows(batch)
    for index in kept_rows:
        row, factor = rows[index], weight_held[index].item() / math.exp(rows[index].delta)
        up, down = (
            factor * reference.surrogate(surrogate.name, math.exp(row.delta + sign * step), row.advantage, clip)
            for sign in (1, -1)
        )
        coefficient = decision.coefficient.expand(batch.n_tokens)[index].item()
        assert gradient[index].item() == pytest.approx(-coefficient * (up - down) / (2 * step), rel=1e-5, abs=1e-9)


@settings(max_examples=25)
@given(batch=batches(dtypes=(torch.float64,)), name=st.sampled_from(sorted(METHODS)))
def test_gradient_under_the_plain_ratio_is_weight_times_advantage(batch: TokenBatch, name: str) -> None:
    method = get_method(name)
    leaf = with_gradient(batch)
    result = policy_loss(method, leaf)
    (gradient,) = torch.autograd.grad(result.loss, leaf.logp_pi)
    expected = -result.weight * batch.advantage / batch.n_tokens
    expected = torch.where(batch.advantage == 0, torch.zeros_like(expected), expected)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=0.0)


def test_plain_ratio_gradient_is_minus_r_a_over_n() -> None:
    batch = from_ratios([0.3, -0.2, 2.0, 0.0], advantage=[1.0, -2.0, 1.0, 0.5], entropy_mu=[1.0] * 4)
    _, gradient = _gradient(get_method("entr"), batch)
    expected = [-math.exp(0.3) / 4, 2 * math.exp(-0.2) / 4, 0.0, -0.5 / 4]  # the third is dropped and still counted
    assert gradient.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("surrogate", SURROGATES, ids=repr)
@pytest.mark.parametrize("column", ["logp_pi", "logp_mu", "entropy_mu"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_reaches_loss_or_gradient(
    name: str, surrogate: Surrogate, column: str, value: float
) -> None:
    columns = {
        "logp_pi": [-1.0, -1.2, -0.8],
        "logp_mu": [-1.0] * 3,
        "entropy_mu": [1.0] * 3,
        "collision_mu": [0.5] * 3,
        "advantage": [1.0, -1.0, 2.0],
    }
    clean = build({key: values[1:] for key, values in columns.items()})
    columns[column][0] = value
    method = get_method(name).with_setting(surrogate=surrogate)
    loss, gradient = _gradient(method, build(columns))
    alone, alone_gradient = _gradient(method, clean)
    assert gradient[0] == 0.0
    torch.testing.assert_close(loss, alone * 2 / 3)  # the dropped token stays in the denominator
    torch.testing.assert_close(gradient[1:], alone_gradient * 2 / 3)


@pytest.mark.parametrize("name", ["async-grpo", "entr-outward", "tis"])
def test_an_infinite_ratio_at_advantage_zero_contributes_nothing(name: str) -> None:
    batch = from_ratios([150.0, 0.1], advantage=[0.0, 1.0], logp_mu=[-151.0, -1.0], dtype=torch.float32)
    loss, gradient = _gradient(get_method(name), batch)
    assert loss.isfinite()
    assert gradient[0] == 0.0
    assert gradient.isfinite().all()


def test_all_tokens_dropped_gives_a_zero_loss_that_still_has_a_gradient() -> None:
    for method in (get_method("entr"), Method(name="x", rule=Fixed(), reduction=REDUCTIONS[1])):
        loss, gradient = _gradient(method, from_ratios([9.0, math.nan]))
        assert loss.item() == 0.0
        assert gradient.tolist() == [0.0, 0.0]


# ------------------------------------------------------------------------------------ entr-outward

BOUND = math.sqrt(1.0 * (1.0 + 0.01))
"""b(H) at H = 1, τ = 1, ε = 0.01."""

CASES = [
    (1.0, 1.5, 0.0),  # outward up: dropped
    (-1.0, 1.5, math.exp(BOUND)),  # inward from above: kept, capped
    (-1.0, -1.5, 0.0),  # outward down: dropped
    (1.0, -1.5, math.exp(-1.5)),  # inward from below: kept, r
    (1.0, 0.4, math.exp(0.4)),  # inside
    (-1.0, -0.4, math.exp(-0.4)),
    (0.0, 1.5, math.exp(BOUND)),  # A = 0 never drops
]


@pytest.mark.parametrize(("advantage", "delta", "weight"), CASES)
def test_weights_of_entr_outward(advantage: float, delta: float, weight: float) -> None:
    batch = from_ratios([delta], advantage=[advantage], entropy_mu=[1.0])
    result = policy_loss(get_method("entr-outward"), batch)
    assert result.weight.tolist() == pytest.approx([weight], rel=1e-9)
    assert result.keep.tolist() == [weight > 0.0]
    _, gradient = _gradient(get_method("entr-outward"), batch)
    assert gradient.tolist() == pytest.approx([-weight * advantage], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logp_mu", [math.log(1e-30), -80.0, -100.0, -9999.0, -1e-9])
@pytest.mark.parametrize("surrogate", SURROGATES, ids=repr)
def test_weight_of_entr_outward_is_capped_whatever_was_recorded(
    dtype: torch.dtype, logp_mu: float, surrogate: Surrogate
) -> None:
    """A wrong recorded probability costs at most e^b: loss and gradient stay finite where e^δ is infinite."""
    batch = build({"logp_mu": [logp_mu], "logp_pi": [-0.5], "advantage": [-1.0], "entropy_mu": [1.0]}, dtype=dtype)
    method = get_method("entr-outward").with_setting(surrogate=surrogate)
    weight = policy_loss(method, batch).weight.item()
    assert weight <= math.exp(BOUND) * (1.0 + 1e-3 * (dtype == torch.float32) + 1e-9)
    loss, gradient = _gradient(method, batch)
    assert loss.isfinite()
    assert gradient.isfinite().all()
    assert gradient.abs().item() <= math.exp(BOUND) * (1.0 + 1e-3)


@given(batches(spoiled=False, dtypes=(torch.float64,)))
def test_weights_of_entr_outward_never_exceed_boundary_or_ratio(batch: TokenBatch) -> None:
    weight = policy_loss(get_method("entr-outward"), batch).weight
    boundary = (batch.entropy_mu + 0.01).sqrt()
    assert (weight <= boundary.exp() * (1 + 1e-9)).all()
    assert (weight <= batch.log_ratio.exp() * (1 + 1e-9)).all()


def test_entr_outward_under_ppo_clip() -> None:
    """The clip drops what moved beyond it with the advantage; an inward token beyond b keeps the weight e^b."""
    method = get_method("entr-outward").with_setting(surrogate=PpoClip())
    deltas, advantages = [0.1, 0.5, 1.5, -0.5, -1.5, -1.5], [1.0, 1.0, -1.0, -1.0, 1.0, -1.0]
    batch = from_ratios(deltas, advantage=advantages, entropy_mu=[1.0] * 6)
    _, gradient = _gradient(method, batch)
    expected = [math.exp(0.1), 0.0, -math.exp(BOUND), 0.0, math.exp(-1.5), 0.0]
    assert (-6.0 * gradient).tolist() == pytest.approx(expected, rel=1e-6, abs=1e-12)


# ------------------------------------------------------------------------------------ splits, runs, shapes


@pytest.mark.parametrize("name", ["entr", "m2po", "entr-outward", "kpop"])
@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.denominator.value)
@pytest.mark.parametrize("n_parts", [1, 3, 17])
def test_micro_batches_add_up_to_the_undivided_batch(name: str, reduction: Reduction, n_parts: int) -> None:
    method = get_method(name).with_setting(reduction=reduction)
    batch = _batch(3, 60)
    loss, gradient = _gradient(method, batch)
    parts = [with_gradient(part) for part in split(batch, n_parts, whole_sequences=False)]
    decisions = decide_micro_batches(method, parts)
    total = torch.zeros((), dtype=torch.float64)
    for part, decision in zip(parts, decisions, strict=True):
        part_loss = policy_loss(method, part, decision).loss
        part_loss.backward()  # type: ignore[no-untyped-call]
        total += part_loss.detach()
    torch.testing.assert_close(total, loss, rtol=1e-9, atol=0.0)
    pieces = torch.cat([part.logp_pi.grad for part in parts])  # type: ignore[misc]
    torch.testing.assert_close(pieces, gradient, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_runs_are_independent_losses(name: str) -> None:
    batch = adversarial_batch(5, 40, runs=(3,))
    result = policy_loss(get_method(name), batch)
    assert result.loss.shape == torch.Size([3])
    for run in range(3):
        alone = policy_loss(get_method(name), batch.runs(run))
        torch.testing.assert_close(result.loss[run], alone.loss)
        torch.testing.assert_close(result.weight[run], alone.weight)


def test_synchronous_grpo_has_the_on_policy_gradient() -> None:
    batch = from_ratios([0.0, 0.5], advantage=[1.0, -2.0])
    _, gradient = _gradient(get_method("sync-grpo"), batch)
    assert gradient.tolist() == pytest.approx([-0.5, 1.0])


def test_masked_ratio_equals_icepop_on_its_own_band() -> None:
    """rules.md, relation 1: a mask with the detached ratio and log π has IcePop's gradient."""
    batch = from_ratios([0.4, -0.3, 3.0], advantage=[1.0, -1.0, 1.0])
    _, gradient = _gradient(get_method("icepop"), batch)
    leaf = with_gradient(batch)
    inside = torch.tensor([True, True, False])
    ratio = torch.where(inside, leaf.log_ratio.detach().exp(), torch.zeros(3).double())
    (other,) = torch.autograd.grad(-(ratio * leaf.advantage * leaf.logp_pi).sum() / 3, leaf.logp_pi)
    torch.testing.assert_close(gradient, other, rtol=1e-6, atol=0.0)


def test_a_given_decision_is_used_and_not_taken_again() -> None:
    batch = from_ratios([0.1, 0.2])
    decision = Decision(torch.tensor([True, False]), torch.tensor(10.0))
    result = policy_loss(get_method("async-grpo"), batch, decision)
    assert result.keep.tolist() == [True, False]
    assert result.loss.item() == pytest.approx(-10.0 * math.exp(0.1))


def test_an_update_without_micro_batches_is_refused() -> None:
    with pytest.raises(ShapeError, match="at least one micro-batch"):
        decide_micro_batches(get_method("entr"), [])


def test_bf16_log_probabilities_receive_bf16_gradients() -> None:
    batch = from_ratios([0.5, -0.5], dtype=torch.bfloat16)
    loss, gradient = _gradient(get_method("entr"), batch)
    assert loss.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    assert gradient.isfinite().all()


def test_the_weight_is_detached_and_zero_on_dropped_tokens() -> None:
    leaf = with_gradient(from_ratios([0.1, 9.0]))
    result = policy_loss(Method(name="x", rule=Fixed()), leaf)
    assert not result.weight.requires_grad
    assert result.weight.tolist() == pytest.approx([math.exp(0.1), 0.0])
    assert policy_loss(Method(name="x", rule=KeepAll()), leaf).weight[1].item() == pytest.approx(math.exp(9.0))
