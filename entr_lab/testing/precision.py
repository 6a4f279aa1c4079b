"""Precision is tested where it shows: at each token's own boundary, found by bisection."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from entr_lab.rules import KeepRule, Scope
from entr_lab.testing.batches import cast
from entr_lab.testing.verdict import agree
from entr_lab.tokens import TokenBatch

__all__ = ["boundary", "check_precision"]


def check_precision(rule: KeepRule, batch: TokenBatch) -> None:
    _compare_dtypes(rule, batch)
    if rule.scope is Scope.TOKEN:
        edge = boundary(rule, batch)
        for factor in (0.99, 1.0 - 3e-4, 1.0 + 3e-4, 1.01):
            _compare_dtypes(rule, replace(batch, logp_pi=batch.logp_mu + (factor * edge).float()))


def boundary(rule: KeepRule, batch: TokenBatch) -> Tensor:
    """Return each token's last kept δ on its own side, by bisection in float64; 0 where none is found below 40."""
    double = cast(batch, torch.float64)
    side = torch.where(double.log_ratio < 0, -1.0, 1.0).double()
    low, high = torch.zeros_like(side), torch.full_like(side, 40.0)
    for _ in range(50):
        middle = 0.5 * (low + high)
        keep = rule.keep(replace(double, logp_pi=double.logp_mu + side * middle))
        low, high = torch.where(keep, middle, low), torch.where(keep, high, middle)
    return torch.where(low < 39.0, side * low, torch.zeros_like(low))


def _compare_dtypes(rule: KeepRule, batch: TokenBatch) -> None:
    keep = rule.keep(batch)
    double = cast(batch, torch.float64)
    exact = rule.keep(double)
    clear = torch.ones_like(keep)  # tokens whose decision does not hang on the fifth digit of δ
    for factor in (1.0 - 1e-4, 1.0 + 1e-4):
        moved = torch.where(double.log_ratio.isfinite(), double.logp_mu + factor * double.log_ratio, double.logp_pi)
        clear &= rule.keep(replace(double, logp_pi=moved)) == exact
    agree("float32 and float64 must agree off the boundary", (keep == exact) | ~clear, batch)
    for dtype in (torch.bfloat16, torch.float16):
        half = cast(batch, dtype)
        same = rule.keep(half) == rule.keep(cast(half, torch.float32))
        agree(f"{dtype} columns must decide as the same values in float32 (use tokens.promote)", same, batch)
