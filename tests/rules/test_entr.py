"""ENTR: its boundary, inclusive; golden values; what it reduces to."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.rules import Entr, Fixed
from entr_lab.rules.entr import boundary, standardised_deviation
from entr_lab.testing import adversarial_batch
from tests.rules.cases import golden
from tests.strategies import build, entropies, from_ratios


@pytest.mark.parametrize("tau", [1.0, 1.6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_golden_boundary(tau: float, dtype: torch.dtype) -> None:
    record = golden("entr_boundary")
    entropy = torch.tensor(record["entropy"], dtype=dtype)
    expected = torch.tensor(record["boundary"][str(tau)], dtype=dtype)
    torch.testing.assert_close(boundary(entropy, tau=tau, eps=record["eps"]), expected, atol=6e-7, rtol=0.0)


@pytest.mark.parametrize("row", golden("cross_rule")["rows"], ids=lambda row: f"mu={row[0]}, pi={row[1]}, H={row[2]}")
def test_golden_vectors(row: list[float]) -> None:
    mu, pi, entropy, log_ratio, score, kept = row[:6]
    batch = build({"logp_mu": [math.log(mu)], "logp_pi": [math.log(pi)], "entropy_mu": [entropy]})
    assert batch.log_ratio.item() == pytest.approx(log_ratio, abs=1e-6)
    z = standardised_deviation(batch.log_ratio, batch.entropy_mu, eps=0.01).item()
    assert z**2 == pytest.approx(score, rel=1e-5, abs=6e-7)
    assert Entr().keep(batch).item() is kept


def test_the_boundary_belongs_to_the_kept_side() -> None:
    # At H = 0 and eps = 1/4 the boundary is exactly 1/2, and so is the log-ratio of these log-probabilities.
    inside = from_ratios([0.5, -0.5], entropy_mu=[0.0, 0.0], dtype=torch.float32)
    beyond = from_ratios([0.5000001, -0.5000001], entropy_mu=[0.0, 0.0], dtype=torch.float64)
    rule = Entr(tau=1.0, eps=0.25)
    assert rule.keep(inside).tolist() == [True, True]
    assert rule.keep(beyond).tolist() == [False, False]


@given(entropies, st.floats(-3.0, 3.0), st.sampled_from((0.7, 1.0, 1.6)), st.sampled_from((0.01, 0.1)))
def test_keeps_exactly_where_z_squared_is_at_most_tau(entropy: float, delta: float, tau: float, eps: float) -> None:
    batch = from_ratios([delta], entropy_mu=[entropy])
    squared = batch.log_ratio.item() ** 2 / (batch.entropy_mu.item() + eps)
    if abs(squared - tau) > 1e-9:
        assert Entr(tau=tau, eps=eps).keep(batch).item() is (squared <= tau)


def test_at_constant_entropy_it_is_a_constant_threshold() -> None:
    entropy, tau, eps = 0.7, 1.6, 0.01
    batch = adversarial_batch(4, 300)
    batch = build(
        {"logp_mu": batch.logp_mu, "logp_pi": batch.logp_pi, "entropy_mu": torch.full((300,), entropy)},
        dtype=torch.float64,
    )
    threshold = math.sqrt(tau * (entropy + eps))
    assert torch.equal(Entr(tau=tau, eps=eps).keep(batch), Fixed(threshold=threshold).keep(batch))


@pytest.mark.parametrize("crossing", golden("entr_boundary")["crossings_of_fixed"], ids=str)
def test_where_a_fixed_bound_meets_it(crossing: dict[str, float]) -> None:
    threshold = math.log(crossing["ratio"])
    below, above = crossing["entropy"] - 1e-4, crossing["entropy"] + 1e-4
    for entropy, tighter in ((below, True), (above, False)):
        found = boundary(torch.tensor([entropy], dtype=torch.float64), tau=crossing["tau"], eps=0.01).item()
        assert (found < threshold) is tighter


def test_entropy_that_rounds_below_zero_counts_as_zero() -> None:
    entropy = torch.tensor([-1e-4, 0.0])
    assert boundary(entropy, tau=1.0, eps=0.01).tolist() == pytest.approx([0.1, 0.1])
    assert entropy.tolist() == pytest.approx([-1e-4, 0.0])  # the input is not clamped in place


def test_half_precision_entropy_gives_a_float32_boundary() -> None:
    found = boundary(torch.tensor([0.5], dtype=torch.bfloat16), tau=1.0, eps=0.01)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(0.7141428, abs=1e-6)


def test_without_a_floor_certain_positions_keep_only_the_exact_policy() -> None:
    batch = from_ratios([0.0, 1e-6], entropy_mu=[0.0, 0.0])
    assert Entr(eps=0.0).keep(batch).tolist() == [True, False]


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"tau": 0.0}, r"tau must lie in \(0, 1e\+18\], got 0.0"),
        ({"tau": -1.0}, r"tau must lie in \(0, 1e\+18\], got -1.0"),
        ({"tau": math.nan}, r"tau must lie in \(0, 1e\+18\], got nan"),
        ({"tau": math.inf}, r"tau must lie in \(0, 1e\+18\], got inf"),
        ({"eps": -0.01}, r"eps must lie in \[0, 1e\+18\], got -0.01"),
        ({"eps": math.nan}, r"eps must lie in \[0, 1e\+18\], got nan"),
        ({"tau": "1.0"}, r"tau must lie in \(0, 1e\+18\], got '1.0'"),
    ],
)
def test_hyper_parameters_out_of_bounds(hyper: dict[str, float], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        Entr(**hyper)


def test_scaling_scales_the_boundary() -> None:
    entropy = torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64)
    wide = Entr().scaled(1.5)
    torch.testing.assert_close(
        boundary(entropy, tau=wide.tau, eps=wide.eps), 1.5 * boundary(entropy, tau=1.0, eps=0.01)
    )
