"""How weight updates move the logits of a position: five drift models.

Every model gives a displacement Δ of the logits, the target being softmax(z + Δ). Most act through something
that all positions share, as an update of real weights does; the local policy gradient does not, and is the
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
    """A displacement of logits; an instance holds what all positions of one run share."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ for logits `[N, V]`, same shape, float64.

        Args:
            logits: the base logits.
            scale: size of the displacement, at least 0.
            generator: source of what is local to a position.
        """
        ...


@final
@dataclass(frozen=True, slots=True)
class IidDrift:
    """Δ = scale · N(0, 1) for each token of each position: the paper's first-order model."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ, see `Drift.displacement`."""
        return scale * normal_noise(*logits.shape, generator=generator)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SharedFeatureDrift:
    """Δ = scale · W u: a shared change W of the head, seen through the position's features u ~ N(0, I)."""

    weight: Tensor
    """W, `[V, width]`, entries N(0, 1/width)."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ, see `Drift.displacement`."""
        features = normal_noise(logits.shape[0], self.weight.shape[1], generator=generator)
        return (scale * features) @ self.weight.T


@final
@dataclass(frozen=True, slots=True, eq=False)
class RankOneDrift:
    """Δ = scale · a (b·h): the update of one outer product; b·h ~ N(0, 1) is the position's own."""

    direction: Tensor
    """a, `[V]`, entries N(0, 1)."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ, see `Drift.displacement`."""
        return scale * normal_noise(logits.shape[0], 1, generator=generator) * self.direction


@final
@dataclass(frozen=True, slots=True)
class LocalGradientDrift:
    """Policy gradient of that position's own samples: Δ = scale · Σ A_k (e_{y_k} − μ), y_k ~ μ, A_k ~ N(0, 1).

    Samples and gradient are the behaviour policy's, as in an asynchronous run. Nothing leaks in from other
    positions, so a confident position barely moves: RMS δ falls about as H and E|δ| as H², too steep.
    """

    samples: int = 30
    """Sampled tokens per position, one a version."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ, see `Drift.displacement`."""
        probs = torch.softmax(logits, -1)
        advantage = scale * normal_noise(logits.shape[0], self.samples, generator=generator)
        tokens = sample_tokens(probs, generator, draws=self.samples)
        return (-advantage.sum(-1, keepdim=True) * probs).scatter_add_(-1, tokens, advantage)


@final
@dataclass(frozen=True, slots=True)
class TemperatureDrift:
    """Δ = scale · (z − max z): every position sharpens by the same factor 1 + scale."""

    def displacement(self, logits: Tensor, scale: float, generator: torch.Generator) -> Tensor:
        """Return Δ, see `Drift.displacement`; `generator` is not used."""
        return scale * (logits - logits.amax(-1, keepdim=True))


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
    """Return the scale of the displacement after `lag` versions: scale_per_version · lag^power.

    Power 1 is ballistic, each version repeating the step before it; power ½ has the size of a random walk.
    """
    check_range("lag", lag, low=0)
    check_range("power", power, low=0.0, low_open=True)
    return scale_per_version * math.pow(lag, power)


def scale_for_rms(
    drift: Drift, logits: Tensor, target_rms: float, generator: torch.Generator, *, iterations: int = 6
) -> float:
    """Return the scale at which √E[δ²] over positions and tokens y ~ μ equals `target_rms`, within 0.1 %.

    RMS δ is nearly proportional to the scale, so a few secant steps in logarithms suffice.

    Args:
        drift: the model.
        logits: `[N, V]` positions to average over.
        target_rms: nats, positive.
        generator: its state at entry is reused for every trial, so that all trials share their noise.
        iterations: trials at most.

    Raises:
        RangeError: `target_rms` is not positive.
        ConfigError: this drift cannot reach it.
    """
    check_range("target_rms", target_rms, low=0.0, low_open=True)
    state = generator.get_state()
    probs = torch.softmax(logits, -1)

    def log_rms(log_scale: float) -> float:
        generator.set_state(state)
        delta = log_ratio_of_shift(probs, drift.displacement(logits, math.exp(log_scale), generator))
        return 0.5 * math.log((probs * delta.square()).sum(-1).mean().item())

    goal = math.log(target_rms)
    x, slope = goal, 1.0
    y = log_rms(x)
    for _ in range(iterations):
        if abs(y - goal) < 1e-3:
            return math.exp(x)
        x_new = x + (goal - y) / slope
        y_new = log_rms(x_new)
        slope = max((y_new - y) / (x_new - x), 0.2)
        x, y = x_new, y_new
    if abs(y - goal) < 1e-3:
        return math.exp(x)
    raise ConfigError(f"target_rms {target_rms:g} nats was not reached by this drift model; choose a smaller one.")
