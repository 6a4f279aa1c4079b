"""IcePop: a band on the ratio, compared in log space."""

from __future__ import annotations

import math

import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.rules import IcePop
from tests.rules.cases import golden
from tests.strategies import build, from_ratios


@pytest.mark.parametrize("row", golden("cross_rule")["rows"], ids=lambda row: f"mu={row[0]}, pi={row[1]}")
def test_golden_vectors(row: list[float]) -> None:
    batch = build({"logp_mu": [math.log(row[0])], "logp_pi": [math.log(row[1])]}, dtype=torch.float64)
    assert IcePop().keep(batch).item() is row[6]


def test_both_ends_are_inclusive_and_asymmetric() -> None:
    low, high = math.log(0.5), math.log(5.0)
    batch = from_ratios([low, high, low - 1e-9, high + 1e-9], logp_mu=[0.0] * 4)
    assert IcePop().keep(batch).tolist() == [True, True, False, False]


def test_a_ratio_that_overflows_float32_is_compared_not_exponentiated() -> None:
    batch = from_ratios([99.0, -99.0], logp_mu=[-99.5, -0.5], dtype=torch.float32)
    assert IcePop(high=math.inf).keep(batch).tolist() == [True, False]


def test_a_band_of_one_keeps_the_exact_policy() -> None:
    assert IcePop(low=1.0, high=1.0).keep(from_ratios([0.0, 1e-9, -1e-9])).tolist() == [True, False, False]


def test_scaling_works_in_log_space_and_never_leaves_its_bounds() -> None:
    rule = IcePop().scaled(2.0)
    assert (rule.low, rule.high) == (0.25, 25.0)
    assert IcePop().scaled(1.0) == IcePop()
    far = IcePop().scaled(1e6)  # 5^1000000 is no float
    assert far.low > 0.0
    assert far.high == math.inf
    assert IcePop(high=math.inf).scaled(3.0) == IcePop(low=0.125, high=math.inf)


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"low": 0.0}, r"low must lie in \(0, 1\], got 0.0"),
        ({"low": 1.5}, r"low must lie in \(0, 1\], got 1.5"),
        ({"high": 0.9}, r"high must lie in \[1, inf\], got 0.9"),
        ({"high": math.nan}, r"high must lie in \[1, inf\], got nan"),
    ],
)
def test_bounds_out_of_bounds(hyper: dict[str, float], message: str) -> None:
    with pytest.raises(RangeError, match=message):
        IcePop(**hyper)
