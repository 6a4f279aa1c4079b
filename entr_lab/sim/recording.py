"""Behaviour-side mismatch of the learning level: what the engine samples from, and what it writes down.

    z′ = z (1 + relative · ξ) + flip_sd · ζ · 1[U < flip_probability]      rounding, and rare routing flips
    y ~ μ = softmax(z′),  H = entropy of μ
    q = clip(μ(y) + error · g / √max(U, 0.02) · (1 − μ(y)), 1e-6, 1)       the recorded probability

ξ is uniform with unit variance (a rounding error is uniform within half a unit in the last place), ζ and g are
normal, U is uniform. The last line is the paper's q = μ + e: without it the importance weight averages to one and
no rule matters at moderate drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.streams import Purpose, stream

__all__ = ["BehaviourNoise", "EngineErrors", "behaviour_noise", "recorded_logp"]

_HEAVY_TAIL_FLOOR: Final = 0.02
_LOWEST_RECORD: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineErrors:
    """Sizes of the engine's errors.

    Raises:
        RangeError: a size is negative, or the flip probability above 1.
    """

    relative: float = 2.0**-9
    """Standard deviation of the relative logit error (bfloat16: 2^-9)."""
    flip_probability: float = 0.01
    """Probability that a token's logits are perturbed by a flipped route."""
    flip_sd: float = 1.0
    """Standard deviation of that perturbation, nats on every logit."""
    recording_error: float = 3e-4
    """Scale of the error of the recorded probability; 0 records μ exactly."""

    def __post_init__(self) -> None:
        for name in ("relative", "flip_sd", "recording_error"):
            check_range(name, getattr(self, name), low=0, high=float("inf"), high_open=True)
        check_range("flip_probability", self.flip_probability, low=0, high=1)


class BehaviourNoise(NamedTuple):
    """Noise of one update for several seeds, shared by all methods of a seed."""

    scale: Tensor
    """`[T, seeds, R, V]` factor on the logits."""
    shift: Tensor
    """`[T, seeds, R, V]` what is added to them."""
    error: NDArray[np.float32]
    """`[seeds, R, T]` error of the recorded probability, before the factor 1 − μ."""


def behaviour_noise(
    errors: EngineErrors, seeds: tuple[int, ...], update: int, horizon: int, rollouts: int, vocabulary: int
) -> BehaviourNoise:
    """Draw the noise of `update`; each seed's block depends on that seed and update alone."""
    scale = torch.empty(horizon, len(seeds), rollouts, vocabulary)
    shift = torch.zeros(horizon, len(seeds), rollouts, vocabulary)
    error = np.empty((len(seeds), rollouts, horizon), dtype=np.float32)
    # A byte has 256 equally likely values; centred, they have standard deviation sqrt((256² − 1) / 12).
    step = errors.relative * (12 / (256**2 - 1)) ** 0.5
    for s, seed in enumerate(seeds):
        rounding = stream(seed, Purpose.LOGIT_NOISE, update)
        raw = rounding.integers(0, 2**64, horizon * rollouts * vocabulary // 8, dtype=np.uint64).view(np.uint8)
        block = torch.from_numpy(raw).view(horizon, rollouts, vocabulary)
        torch.add(block, -127.5, out=scale[:, s])
        flips = stream(seed, Purpose.FLIPS, update)
        step_of, rollout_of = np.nonzero(flips.random((horizon, rollouts)) < errors.flip_probability)
        flipped = flips.standard_normal((len(step_of), vocabulary), dtype=np.float32) * errors.flip_sd
        shift[step_of, s, rollout_of] = torch.from_numpy(flipped.astype(np.float32))
        recording = stream(seed, Purpose.RECORDING, update)
        size = recording.standard_normal((rollouts, horizon), dtype=np.float32)
        heavy = np.sqrt(np.maximum(recording.random((rollouts, horizon), dtype=np.float32), _HEAVY_TAIL_FLOOR))
        error[s] = errors.recording_error * size / heavy
    return BehaviourNoise(scale.mul_(step).add_(1.0), shift, error)


def recorded_logp(logp: Tensor, error: Tensor) -> Tensor:
    """Return log q for the true log μ(y) and the drawn error, both `[..., R, T]`."""
    mu = logp.exp()
    return (mu + error * (1.0 - mu)).clamp_(_LOWEST_RECORD, 1.0).log_()
