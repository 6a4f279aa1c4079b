"""Detached weights: none, the whole ratio, truncated at a constant, truncated at the rule's own boundary."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ConfigError, RangeError
from entr_lab.objective import Anchor, Weight, WeightKind, log_factor, log_ratios
from entr_lab.rules import Entr, Fixed, IcePop, KeepAll, KeepRule, M2po
from tests.strategies import entropies, from_ratios, with_gradient

NONE, RATIO, BOUNDARY = (Weight(kind=kind) for kind in (WeightKind.NONE, WeightKind.RATIO, WeightKind.BOUNDARY))
TIS = Weight(kind=WeightKind.TRUNCATED, cap=2.0)


def _weight(
    weight: Weight, delta: float, anchor: Anchor = Anchor.BEHAVIOUR, prox: float = -1.0, rule: KeepRule | None = None
) -> float:
    """Return f·r, the total weight of one token at log μ = −1."""
    batch = from_ratios([delta], logp_prox=[prox])
    ratios = log_ratios(batch, anchor)
    factor = log_factor(weight, ratios, rule or KeepAll(), batch)
    return float((factor + ratios.surrogate).exp())


@given(st.floats(-20.0, 20.0))
def test_total_weights_under_the_behaviour_anchor(delta: float) -> None:
    ratio = math.exp(delta)
    assert _weight(NONE, delta) == pytest.approx(ratio)  # the surrogate holds the whole ratio
    assert _weight(RATIO, delta) == pytest.approx(ratio)
    assert _weight(TIS, delta) == pytest.approx(min(ratio, 2.0))
    assert _weight(BOUNDARY, delta, rule=Fixed(threshold=1.2)) == pytest.approx(min(ratio, math.exp(1.2)))
    assert _weight(BOUNDARY, delta, rule=IcePop()) == pytest.approx(min(ratio, 5.0))


@given(st.floats(-5.0, 5.0), st.floats(-5.0, -0.01))
def test_the_proximal_anchor_truncates_its_correction_only(delta: float, prox: float) -> None:
    r = math.exp(delta - 1.0 - prox)
    correction = math.exp(prox + 1.0)
    assert _weight(NONE, delta, Anchor.PROXIMAL, prox) == pytest.approx(r)
    assert _weight(RATIO, delta, Anchor.PROXIMAL, prox) == pytest.approx(r * correction)
    assert _weight(TIS, delta, Anchor.PROXIMAL, prox) == pytest.approx(r * min(correction, 2.0))


@pytest.mark.parametrize("weight", [NONE, RATIO, TIS], ids=lambda weight: weight.kind.value)
def test_the_current_anchor_has_weight_one(weight: Weight) -> None:
    assert _weight(weight, 3.0, Anchor.CURRENT) == 1.0


@given(entropies, st.floats(-30.0, 30.0))
def test_a_boundary_weight_is_capped_at_e_to_the_boundary(entropy: float, delta: float) -> None:
    batch = from_ratios([delta], entropy_mu=[entropy])
    ratios = log_ratios(batch, Anchor.BEHAVIOUR)
    total = (log_factor(BOUNDARY, ratios, Entr(), batch) + ratios.surrogate).exp().item()
    cap = math.exp(math.sqrt(entropy + 0.01))
    assert total == pytest.approx(min(math.exp(delta), cap), rel=1e-9)


def test_weights_carry_no_gradient() -> None:
    batch = with_gradient(from_ratios([0.3, 4.0]))
    for weight, rule in ((TIS, KeepAll()), (BOUNDARY, Entr()), (RATIO, KeepAll())):
        assert not log_factor(weight, log_ratios(batch, Anchor.BEHAVIOUR), rule, batch).requires_grad


def test_keep_all_has_its_boundary_at_infinity() -> None:
    assert _weight(BOUNDARY, 7.0, rule=KeepAll()) == pytest.approx(math.exp(7.0))


def test_a_rule_without_a_boundary_cannot_truncate_at_it() -> None:
    batch = from_ratios([0.1])
    with pytest.raises(ConfigError, match=r"rule 'm2po' has no boundary in δ to truncate at"):
        log_factor(BOUNDARY, log_ratios(batch, Anchor.BEHAVIOUR), M2po(), batch)


def test_which_weights_are_capped() -> None:
    assert TIS.is_capped
    assert BOUNDARY.is_capped
    assert not RATIO.is_capped
    assert not NONE.is_capped
    assert not Weight(kind=WeightKind.TRUNCATED).is_capped


@pytest.mark.parametrize("cap", [0.0, -2.0, math.nan])
def test_cap_out_of_bounds(cap: float) -> None:
    with pytest.raises(RangeError, match=r"cap must lie in \(0, inf\]"):
        Weight(kind=WeightKind.TRUNCATED, cap=cap)


def test_factors_broadcast_to_the_batch() -> None:
    batch = from_ratios([0.1, 0.2])
    for weight in (NONE, RATIO, TIS):
        factor = log_factor(weight, log_ratios(batch, Anchor.BEHAVIOUR), KeepAll(), batch)
        assert factor.expand(2).shape == torch.Size([2])
