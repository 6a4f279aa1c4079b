"""KPop: golden ranges, and the numerics of probabilities near 1 in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.rules import Kpop
from entr_lab.rules.kpop import binary_kl, log1mexp
from tests import reference
from tests.rules.cases import golden
from tests.strategies import build


def _batch(mu: float, pi: float, dtype: torch.dtype = torch.float64) -> Any:
    return build({"logp_mu": [math.log(mu)], "logp_pi": [math.log(pi)]}, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("row", golden("cross_rule")["rows"], ids=lambda row: f"mu={row[0]}, pi={row[1]}")
def test_golden_vectors(row: list[float], dtype: torch.dtype) -> None:
    logp = torch.tensor(math.log(row[1]), dtype=dtype)
    logq = torch.tensor(math.log(row[0]), dtype=dtype)
    assert [direction.item() for direction in binary_kl(logp, logq)] == pytest.approx(row[7:9], abs=2e-6)
    assert [direction.item() for direction in binary_kl(logq, logp)] == pytest.approx(row[8:6:-1], abs=2e-6)
    assert Kpop(phi=0.1).keep(_batch(row[0], row[1], dtype)).item() is row[9]


@pytest.mark.parametrize("row", golden("kpop_ranges")["rows"], ids=lambda row: f"mu={row['mu']}")
def test_golden_ranges_of_accepted_probabilities(row: dict[str, float | None]) -> None:
    mu, slack = row["mu"], golden("kpop_ranges")["relative_digits"]
    rule = Kpop(phi=0.1, floor=2.0**-24)  # the smallest floor: the range at mu = 0.01 reaches down to 1.68e-7
    for end, outwards in (("low", -1.0), ("high", 1.0)):
        edge = row[end]
        if edge is None:
            assert rule.keep(_batch(mu, 1e-12)).item()
            continue
        # Relative to pi, or to 1 - pi where that is the smaller of the two; the extreme ends have three digits.
        distance = min(edge, 1.0 - edge)
        step = outwards * distance * (1e-2 if distance < 1e-5 else slack)
        assert rule.keep(_batch(mu, edge - step)).item()
        assert not rule.keep(_batch(mu, edge + step)).item()


@given(st.floats(-17.0, 0.5))
def test_log1mexp_in_float32_has_all_its_digits(power: float) -> None:
    logp = -(np.float32(10.0) ** np.float32(power))
    exact = np.log1p(-np.exp(np.longdouble(logp))) if logp < -1.0 else np.log(-np.expm1(np.longdouble(logp)))
    assert log1mexp(torch.tensor(logp)).item() == pytest.approx(float(exact), rel=3e-7, abs=1e-7)


@given(st.floats(-6.0, -0.31), st.floats(-6.0, -0.31))
def test_divergence_near_certainty_does_not_cancel(power_p: float, power_q: float) -> None:
    """p = 1 − 10^power_p: in float32, 1 − exp(log p) would have no digit left below 1e-7."""
    logp, logq = (np.float32(math.log1p(-(10.0**power))) for power in (power_p, power_q))
    found = Kpop().divergence(build({"logp_mu": [float(logq)], "logp_pi": [float(logp)]})).item()
    row = reference.Row(float(logp), float(logq), 1.0, 1.0, math.nan)
    assert found == pytest.approx(reference.kpop_divergence(row, 1e-6), rel=1e-4, abs=3e-7)


def test_divergence_against_probabilities_in_extended_precision() -> None:
    generator = np.random.default_rng(0)
    p, q = generator.uniform(0.001, 0.999, (2, 500))
    both = binary_kl(torch.tensor(np.log(p)), torch.tensor(np.log(q)))
    for found, (left, right) in zip(both, ((p, q), (q, p)), strict=True):
        values = [reference.binary_kl(one, other) for one, other in zip(left, right, strict=True)]
        torch.testing.assert_close(found, torch.tensor(values, dtype=torch.float64), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_probabilities_that_round_to_one_are_decided_not_undefined(dtype: torch.dtype) -> None:
    batch = build({"logp_mu": [0.0, 0.0, -1e-9, 0.0], "logp_pi": [0.0, -1e-9, 0.0, -5.0]}, dtype=dtype)
    assert Kpop().divergence(batch).isfinite().all()
    assert Kpop().keep(batch).tolist() == [True, True, True, False]


def test_a_rare_token_is_hardly_ever_rejected() -> None:
    assert Kpop(phi=0.1).keep(_batch(1e-4, 200e-4)).item()
    assert not Kpop(phi=0.1).keep(_batch(0.5, 0.75)).item()


def test_both_directions_must_be_small() -> None:
    # D_B(mu‖pi) = 0.0997 is accepted, D_B(pi‖mu) = 0.37 is not.
    mu_to_pi, pi_to_mu = binary_kl(torch.tensor(math.log(0.999)), torch.tensor(math.log(0.90)))
    assert mu_to_pi < 0.1 < pi_to_mu
    assert not Kpop(phi=0.1).keep(_batch(0.999, 0.90)).item()
    assert not Kpop(phi=0.1).keep(_batch(0.90, 0.999)).item()


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"phi": 0.0}, r"phi must lie in \(0, 1e\+18\]"),
        ({"phi": math.nan}, r"phi must lie in \(0, 1e\+18\]"),
        ({"floor": 0.0}, r"floor must lie in \["),
        ({"floor": 0.5}, r"floor must lie in \["),
    ],
)
def test_hyper_parameters_out_of_bounds(hyper: dict[str, float], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        Kpop(**hyper)
