"""Surrogates against the printed formulas, their gradients against hand formulas, and overflow."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError, UnknownNameError
from entr_lab.objective import SURROGATES, PlainRatio, PpoClip, Surrogate, make_surrogate
from tests import reference

VARIANTS = [
    PlainRatio(),
    PpoClip(),
    PpoClip(eps_low=0.2, eps_high=0.2),
    PpoClip(dual_clip=3.0),
    PpoClip(eps_low=1.0, eps_high=4.0, dual_clip=1.5),
]
every_variant = pytest.mark.parametrize("surrogate", VARIANTS, ids=repr)


def _value(surrogate: Surrogate, delta: float, advantage: float, factor: float = 0.0) -> tuple[float, float]:
    """Return value and derivative in log π."""
    x = torch.tensor([delta], dtype=torch.float64, requires_grad=True)
    value = surrogate.value(
        x, torch.tensor([advantage], dtype=torch.float64), torch.tensor([factor], dtype=torch.float64)
    )
    (gradient,) = torch.autograd.grad(value.sum(), x)
    return value.item(), gradient.item()


def _hyper(surrogate: Surrogate) -> dict[str, float]:
    names = ("eps_low", "eps_high", "dual_clip")
    return {name: getattr(surrogate, name) for name in names if hasattr(surrogate, name)}


@every_variant
@given(delta=st.floats(-5.0, 5.0), advantage=st.sampled_from((-2.0, -1.0, 0.0, 0.5, 3.0)), factor=st.floats(-3.0, 0.0))
def test_value_equals_the_printed_formula(surrogate: Surrogate, delta: float, advantage: float, factor: float) -> None:
    expected = math.exp(factor) * reference.surrogate(surrogate.name, math.exp(delta), advantage, _hyper(surrogate))
    assert _value(surrogate, delta, advantage, factor)[0] == pytest.approx(expected, rel=1e-12, abs=1e-300)


@every_variant
@given(delta=st.floats(-4.0, 4.0), advantage=st.sampled_from((-2.0, 0.5, 3.0)), factor=st.floats(-3.0, 0.0))
def test_gradient_equals_finite_differences_away_from_the_kinks(
    surrogate: Surrogate, delta: float, advantage: float, factor: float
) -> None:
    step = 1e-6
    kinks = [1.0 - getattr(surrogate, "eps_low", 0.5), 1.0 + getattr(surrogate, "eps_high", 0.5)]
    kinks.append(getattr(surrogate, "dual_clip", math.inf))
    if any(0.0 < kink < math.inf and abs(delta - math.log(kink)) < 1e-4 for kink in kinks):
        return
    up, down = (_value(surrogate, delta + sign * step, advantage, factor)[0] for sign in (1, -1))
    assert _value(surrogate, delta, advantage, factor)[1] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-8)


@given(st.floats(-5.0, 5.0), st.floats(-3.0, 3.0))
def test_gradient_of_the_plain_ratio_is_ratio_times_advantage(delta: float, advantage: float) -> None:
    value, gradient = _value(PlainRatio(), delta, advantage)
    assert value == gradient == pytest.approx(math.exp(delta) * advantage)


@pytest.mark.parametrize(
    ("delta", "advantage", "active"),
    [
        (math.log(1.27), 1.0, True),
        (math.log(1.29), 1.0, False),  # already pushed up enough
        (math.log(0.5), 1.0, True),
        (math.log(0.81), -1.0, True),
        (math.log(0.79), -1.0, False),  # already pushed down enough
        (math.log(30.0), -1.0, True),  # without a dual clip A < 0 and r ≫ 1 is unbounded
    ],
)
def test_where_the_clip_stops_the_gradient(delta: float, advantage: float, active: bool) -> None:
    ratio = math.exp(delta)
    assert _value(PpoClip(), delta, advantage)[1] == pytest.approx(ratio * advantage if active else 0.0)


def test_dual_clip_bounds_negative_advantages_and_drops_their_gradient() -> None:
    surrogate = PpoClip(dual_clip=3.0)
    assert _value(surrogate, math.log(2.9), -2.0) == pytest.approx((-5.8, -5.8))
    assert _value(surrogate, math.log(30.0), -2.0) == pytest.approx((-6.0, 0.0))
    assert _value(surrogate, math.log(30.0), 2.0) == pytest.approx((2.56, 0.0))


def test_a_lower_clip_of_one_never_clips_from_below() -> None:
    assert _value(PpoClip(eps_low=1.0), -30.0, -1.0)[1] == pytest.approx(-math.exp(-30.0))


@every_variant
@pytest.mark.parametrize("delta", [100.0, 1000.0, -1000.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_capped_factor_leaves_value_and_gradient_finite_in_float32(
    surrogate: Surrogate, delta: float, advantage: float
) -> None:
    """min(r, 2): e^δ overflows, e^(δ + log f) does not."""
    x = torch.tensor([delta], requires_grad=True)
    factor = (torch.tensor([math.log(2.0)]) - x.detach()).clamp(max=0.0)
    value = surrogate.value(x, torch.tensor([advantage]), factor)
    value.sum().backward()
    assert value.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.abs().item() <= 2.0 * (1 + 1e-4)


@pytest.mark.parametrize("delta", [100.0, 1000.0])
def test_clipping_comes_before_the_exponential(delta: float) -> None:
    x = torch.tensor([delta], requires_grad=True)
    value = PpoClip().value(x, torch.tensor([1.0]), torch.zeros(1))
    value.sum().backward()
    assert value.item() == pytest.approx(1.28)
    assert x.grad is not None
    assert x.grad.item() == 0.0


def test_surrogates_by_name() -> None:
    assert make_surrogate("ppo-clip") == PpoClip()
    assert all(make_surrogate(name).name == name for name in SURROGATES)
    with pytest.raises(UnknownNameError, match=r"unknown surrogate 'ppo'; did you mean 'ppo-clip'\?"):
        make_surrogate("ppo")


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"eps_low": 0.0}, r"eps_low must lie in \(0, 1\], got 0.0"),
        ({"eps_low": 1.1}, r"eps_low must lie in \(0, 1\], got 1.1"),
        ({"eps_high": 0.0}, r"eps_high must lie in \(0, inf\], got 0.0"),
        ({"dual_clip": 1.0}, r"dual_clip must lie in \(1, inf\], got 1.0"),
        ({"dual_clip": math.nan}, r"dual_clip must lie in \(1, inf\], got nan"),
    ],
)
def test_hyper_parameters_out_of_bounds(hyper: dict[str, float], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        PpoClip(**hyper)
