"""Surrogates: what one token contributes, given its log-ratio and advantage, before weight and reduction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf, log, log1p
from typing import ClassVar, Final, final

import torch
from torch import Tensor

from entr_lab.errors import check_choice, check_range

__all__ = ["SURROGATES", "PlainRatio", "PpoClip", "Surrogate", "make_surrogate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrogate(ABC):
    """A per-token objective to maximise."""

    name: ClassVar[str]

    @abstractmethod
    def value(self, log_ratio: Tensor, advantage: Tensor, log_factor: Tensor) -> Tensor:
        """Return `[..., N]`, e^log_factor times the objective, differentiable in `log_ratio`.

        The factor belongs in the exponent: a weight min(r, C) is finite where r is not.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRatio(Surrogate):
    """r·A, whose gradient r·A·∇log π is the importance-sampled policy gradient."""

    name: ClassVar[str] = "plain-ratio"

    def value(self, log_ratio: Tensor, advantage: Tensor, log_factor: Tensor) -> Tensor:
        """Return f·exp(x)·A."""
        return (log_ratio + log_factor).exp() * advantage


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PpoClip(Surrogate):
    """min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A), floored at dual_clip·A where A < 0.

    Args:
        eps_low: ε_low in (0, 1].
        eps_high: ε_high > 0; 0.28 with ε_low = 0.2 is DAPO's pair.
        dual_clip: cap on the ratio of negative advantages, above 1; its gradient is dropped beyond. ∞ is plain PPO,
            where A < 0 and r ≫ 1 is unbounded.
    """

    eps_low: float = 0.2
    eps_high: float = 0.28
    dual_clip: float = inf

    name: ClassVar[str] = "ppo-clip"

    def __post_init__(self) -> None:
        check_range("eps_low", self.eps_low, low=0.0, low_open=True, high=1.0)
        check_range("eps_high", self.eps_high, low=0.0, low_open=True)
        check_range("dual_clip", self.dual_clip, low=1.0, low_open=True)

    def value(self, log_ratio: Tensor, advantage: Tensor, log_factor: Tensor) -> Tensor:
        """Return the clipped objective times f.

        min(r·A, clip(r)·A) is A·min(r, 1 + ε_high) for A > 0 and A·max(r, 1 − ε_low) for A < 0: one end acts. Clamped
        before the exponential, a ratio that overflows leaves value and gradient finite.
        """
        lowest = log(1.0 - self.eps_low) if self.eps_low < 1.0 else -inf
        down = log_ratio.clamp(lowest, log(self.dual_clip))
        up = log_ratio.clamp(max=log1p(self.eps_high))
        bounded = torch.where(advantage < 0, down, up)
        return (bounded + log_factor).exp() * advantage


SURROGATES: Final[dict[str, type[Surrogate]]] = {PlainRatio.name: PlainRatio, PpoClip.name: PpoClip}


def make_surrogate(name: str) -> Surrogate:
    """Return a surrogate with its defaults.

    Raises:
        UnknownNameError: no such surrogate.
    """
    return SURROGATES[check_choice("surrogate", name, SURROGATES)]()
