"""A failed clause says which token broke it, with the numbers that decide."""

from __future__ import annotations

import pytest
import torch

from entr_lab.testing.verdict import agree, require
from tests.strategies import from_ratios


def test_require_raises_the_clause_itself() -> None:
    require(True, "never shown")
    with pytest.raises(AssertionError, match=r"^the clause$"):
        require(False, "the clause")


def test_agree_describes_the_first_token_that_breaks_the_clause() -> None:
    batch = from_ratios([0.1, 0.25, 0.5], entropy_mu=[0.0, 1.5, 2.0], advantage=[1.0, -1.0, 1.0], logp_mu=[-2.0] * 3)
    agree("never shown", torch.tensor([True, True, True]), batch)
    message = "the clause: 2 of 3 tokens, the first at 1 with δ=0.25, log μ=-2, H=1.5, A=-1"
    with pytest.raises(AssertionError, match=message):
        agree("the clause", torch.tensor([True, False, False]), batch)
