"""How weight updates move the logits of a position: five drift models.

Every model gives a direction D of the logits; the target is softmax(z + Δ), Δ = scale · D. Most act through what
all positions share, as an update of real weights does; the local policy gradient does not, and is the
control. Models are ours. Growth with lag is ballistic by default, because consecutive updates of a trained
policy point the same way (the RMS of δ grows as lag^0.84 … lag^1.05 in trained runs).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, final

import torch
from torch import Tensor

from entr_lab.errors import ConfigError, check_choice, check_range
from entr_lab.sim.logits import log_ratio_of_shift, normal_noise, sample_tokens

__all__ = [
    "DRIFTS",
    "Drift",
    "IidDrift",
    "LocalGradientDrift",
    "RankOneDrift",
    "SharedFeatureDrift",
    "TemperatureDrift",
    "lag_scale",
    "make_drift",
    "scale_for_rms",
]


class Drift(Protocol):
    """A direction of the logits; an instance holds what all positions of one run share."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D for logits `[N, V]`, same shape and dtype; `generator` is the source of what is local."""
        ...


@final
@dataclass(frozen=True, slots=True)
class IidDrift:
    """D = N(0, 1) for each token of each position: the paper's first-order model."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D, see `Drift.direction`."""
        return normal_noise(*logits.shape, generator=generator, dtype=logits.dtype)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SharedFeatureDrift:
    """D = W u: a shared change W of the head, seen through the position's features u ~ N(0, I)."""

    weight: Tensor
    """W, `[V, width]`, entries N(0, 1/width)."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D, see `Drift.direction`."""
        width = self.weight.shape[1]
        features = normal_noise(logits.shape[0], width, generator=generator, dtype=logits.dtype)
        return features @ self.weight.to(logits.dtype).T


@final
@dataclass(frozen=True, slots=True, eq=False)
class RankOneDrift:
    """D = a (b·h): the update of one outer product; b·h ~ N(0, 1) is the position's own."""

    row: Tensor
    """a, `[V]`, entries N(0, 1)."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D, see `Drift.direction`."""
        amount = normal_noise(logits.shape[0], 1, generator=generator, dtype=logits.dtype)
        return amount * self.row.to(logits.dtype)


@final
@dataclass(frozen=True, slots=True)
class LocalGradientDrift:
    """Policy gradient of that position's own samples: D = Σ A_k (e_{y_k} − μ), y_k ~ μ, A_k ~ N(0, 1).

    Samples and gradient are the behaviour policy's, as in an asynchronous run. Nothing leaks in from other
    positions, so a confident position barely moves: RMS δ falls about as H and E|δ| as H², too steep.
    """

    samples: int = 30
    """Sampled tokens per position, one a version."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D, see `Drift.direction`."""
        probs = torch.softmax(logits, -1)
        advantage = normal_noise(logits.shape[0], self.samples, generator=generator, dtype=logits.dtype)
        tokens = sample_tokens(probs, generator, draws=self.samples)
        return (-advantage.sum(-1, keepdim=True) * probs).scatter_add_(-1, tokens, advantage)


@final
@dataclass(frozen=True, slots=True)
class TemperatureDrift:
    """D = z − max z: every position sharpens by the same factor."""

    def direction(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return D, see `Drift.direction`; `generator` is not used."""
        return logits - logits.amax(-1, keepdim=True)


_SECANT_STEPS: Final = 12
_RMS_TOLERANCE: Final = 2e-3
_FLATTEST: Final = 0.2
"""Smallest d log RMS / d log scale that a secant step believes."""

_FEATURE_WIDTH: Final = 48
"""Features of the shared-feature model: few beside the vocabulary, as in a language model's head."""

DRIFTS: Final[dict[str, Callable[[int, torch.Generator], Drift]]] = {
    "iid": lambda vocab, generator: IidDrift(),
    "feature": lambda vocab, generator: SharedFeatureDrift(
        normal_noise(vocab, _FEATURE_WIDTH, generator=generator) / math.sqrt(_FEATURE_WIDTH)
    ),
    "rank1": lambda vocab, generator: RankOneDrift(normal_noise(vocab, generator=generator)),
    "local-gradient": lambda vocab, generator: LocalGradientDrift(),
    "temperature": lambda vocab, generator: TemperatureDrift(),
}
"""Name → a function of vocabulary size and generator that draws what the positions of one run share."""


def make_drift(name: str, vocab: int, generator: torch.Generator) -> Drift:
    """Draw the named drift model for one run.

    Raises:
        UnknownNameError: no such model.
    """
    return DRIFTS[check_choice("drift model", name, DRIFTS)](vocab, generator)


def lag_scale(scale_per_version: float, lag: int, *, power: float = 1.0) -> float:
    """Return the scale of the drift after `lag` versions: scale_per_version · lag^power.

    Power 1 is ballistic, each version repeating the step before it; power ½ has the size of a random walk.
    """
    check_range("lag", lag, low=0)
    check_range("power", power, low=0.0, low_open=True)
    return scale_per_version * math.pow(lag, power)


def scale_for_rms(probs: Tensor, direction: Tensor, target_rms: float) -> float:
    """Return the scale at which √E[δ²] over positions and tokens y ~ μ equals `target_rms`, within 0.2 %.

    To first order E[δ²] = scale² E[Var_μ(D)]; secant steps in logarithms do the rest.

    Args:
        probs: μ, `[N, V]` positions to average over.
        direction: D, `[N, V]`.
        target_rms: nats, positive.

    Raises:
        RangeError: `target_rms` is not positive.
        ConfigError: this direction cannot reach it.
    """
    check_range("target_rms", target_rms, low=0.0, low_open=True)
    goal = math.log(target_rms)
    variance = _mean_square(probs, direction - (probs * direction).sum(-1, keepdim=True))
    if variance == 0:
        raise ConfigError("this drift moves all logits of a position alike, so that δ is 0; choose another model.")
    x_old, y_old = 0.0, 0.5 * math.log(variance)
    x = goal - y_old  # where the first-order law, a line of slope 1 through (0, y_old), meets the goal
    for _ in range(_SECANT_STEPS):
        y = 0.5 * math.log(_mean_square(probs, log_ratio_of_shift(probs, math.exp(x) * direction)))
        if abs(y - goal) < _RMS_TOLERANCE:
            return math.exp(x)
        slope = max((y - y_old) / (x - x_old), _FLATTEST) if x != x_old else 1.0
        x_old, y_old, x = x, y, x + (goal - y) / slope
    raise ConfigError(f"target_rms {target_rms:g} nats is beyond this drift model; choose a smaller one.")


def _mean_square(probs: Tensor, values: Tensor) -> float:
    return float((probs * values.square()).sum(-1).mean())
