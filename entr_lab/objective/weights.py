"""Detached weights: how much of the importance ratio a kept token may carry.

A weight is a factor f ≤ e^c on the surrogate, constant for the gradient. With the behaviour anchor the surrogate
holds the whole ratio r = e^δ, so truncating the weight at C is f = min(1, C/r): the token then contributes
min(r, C)·A·∇log π. All of it is computed in log space, so that nothing overflows where it would be truncated anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf, log

import torch
from torch import Tensor

from entr_lab.errors import ConfigError, check_member, check_range
from entr_lab.objective.ratios import LogRatios
from entr_lab.rules import BoundedRule, KeepRule
from entr_lab.tokens import TokenBatch

__all__ = ["Weight", "WeightKind", "log_factor"]


class WeightKind(StrEnum):
    """`none`: no correction. `ratio`: all of it. `truncated`: at a constant (TIS). `boundary`: at the rule's own."""

    NONE = "none"
    RATIO = "ratio"
    TRUNCATED = "truncated"
    BOUNDARY = "boundary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A detached weight.

    Args:
        kind: see `WeightKind`.
        cap: largest weight of `truncated`, 2 in verl's TIS; not used otherwise.

    Raises:
        RangeError: the cap of a truncated weight is not positive.
    """

    kind: WeightKind = WeightKind.RATIO
    cap: float = inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", check_member("weight", self.kind, WeightKind))
        check_range("cap", self.cap, low=0.0, low_open=True)

    @property
    def is_capped(self) -> bool:
        """Whether the weight is bounded whatever μ says."""
        return self.kind is WeightKind.BOUNDARY or (self.kind is WeightKind.TRUNCATED and self.cap < inf)


def log_factor(weight: Weight, ratios: LogRatios, rule: KeepRule, batch: TokenBatch) -> Tensor:
    """Return log f, detached, broadcastable to `[..., N]`.

    Raises:
        ConfigError: a boundary weight is asked of a rule that has no boundary in δ.
    """
    if weight.kind is WeightKind.NONE:
        return torch.zeros_like(ratios.correction)
    if weight.kind is WeightKind.RATIO:
        return ratios.correction
    high: Tensor | float = log(weight.cap) if weight.cap < inf else inf
    if weight.kind is WeightKind.BOUNDARY:
        if not isinstance(rule, BoundedRule):
            raise ConfigError(f"rule {rule.name!r} has no boundary in δ to truncate at; truncate at a constant.")
        high = rule.bounds(batch.detach())[1]
    return ratios.correction + (high - ratios.mismatch).clamp(max=0.0)
