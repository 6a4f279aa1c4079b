"""How long trajectories are: token counts, turns, tool waits.

A law of lengths is a quantile function, so that one pair of normals serves all of them: rollout i of a group has the
normal score  z_i = √ρ·z_group + √(1 − ρ)·e_i  and the length  Q(Φ(z_i)). With ρ > 0 the rollouts of a hard prompt are
long together, which is what makes a group's completion later than a trajectory's. Lengths are whole tokens, at least
one, at most `cap` (a trajectory that would be longer is truncated there, as an engine does with its maximum length).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from entr_lab.errors import ConfigError, check_range

__all__ = ["Empirical", "Fixed", "LengthLaw", "LogNormal", "ParetoTail", "Workload", "wait_times"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class LengthLaw(Protocol):
    """A distribution of positive lengths, in tokens, given by its quantile function."""

    def quantile(self, score: Floats) -> Floats:
        """Return Q(Φ(score)), uncapped and unrounded; `score` holds standard-normal values, any shape."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every trajectory has `mean` tokens."""

    mean: float

    def __post_init__(self) -> None:
        check_range("the mean length", self.mean, low=1)

    def quantile(self, score: Floats) -> Floats:
        return np.full(score.shape, float(self.mean))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal with the given mean (tokens) and coefficient of variation, before the cap."""

    mean: float
    cv: float

    def __post_init__(self) -> None:
        check_range("the mean length", self.mean, low=1)
        check_range("the coefficient of variation", self.cv, low=0, high=20)

    def quantile(self, score: Floats) -> Floats:
        variance = math.log1p(self.cv**2)
        return self.mean * np.exp(math.sqrt(variance) * score - 0.5 * variance)


@dataclass(frozen=True, slots=True)
class ParetoTail:
    """Pareto: P(length > x) = (x_min/x)^tail for x ≥ x_min, scaled to the given mean before the cap; tail > 1."""

    mean: float
    tail: float

    def __post_init__(self) -> None:
        check_range("the mean length", self.mean, low=1)
        check_range("the Pareto exponent", self.tail, low=1, low_open=True)

    def quantile(self, score: Floats) -> Floats:
        minimum = self.mean * (self.tail - 1.0) / self.tail
        return np.asarray(minimum * ndtr(-score) ** (-1.0 / self.tail))


@dataclass(frozen=True, slots=True)
class Empirical:
    """The lengths of a trace, drawn with replacement."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ConfigError("an empirical law needs at least one length, got none; give the lengths of a trace.")
        check_range("the smallest empirical length", min(self.values), low=1)
        object.__setattr__(self, "values", tuple(sorted(self.values)))

    def quantile(self, score: Floats) -> Floats:
        table = np.asarray(self.values)
        index = np.minimum((ndtr(score) * table.size).astype(np.int64), table.size - 1)
        return np.asarray(table[index])


@dataclass(frozen=True, slots=True)
class Workload:
    """What a prompt group asks of a generator.

    `prompt` tokens are prefilled once per rollout; each of the turns ends in a tool call that waits and returns
    `tool_tokens` of context, except the last. The response tokens of a trajectory are shared evenly by its turns.
    """

    lengths: LengthLaw
    cap: int
    """Longest response, in tokens."""
    group_correlation: float = 0.0
    """ρ in [0, 1): how much of the variance of the normal score is the prompt's."""
    turns: float = 1.0
    """Mean number of turns, of which each is the last with the same probability, and that of `max_turns` for sure."""
    max_turns: int = 1

    def __post_init__(self) -> None:
        check_range("the length cap", self.cap, low=1)
        check_range("the correlation of lengths within a group", self.group_correlation, low=0, high=1, high_open=True)
        check_range("max_turns", self.max_turns, low=1)
        check_range("the mean number of turns", self.turns, low=1, high=self.max_turns)

    def lengths_of(self, rng: np.random.Generator, groups: int, size: int) -> Ints:
        """Draw response lengths `[groups, size]`, in tokens."""
        shared = rng.standard_normal((groups, 1))
        own = rng.standard_normal((groups, size))
        score = math.sqrt(self.group_correlation) * shared + math.sqrt(1.0 - self.group_correlation) * own
        return np.clip(np.rint(self.lengths.quantile(score)), 1, self.cap).astype(np.int64)

    def turns_of(self, rng: np.random.Generator, groups: int, size: int) -> Ints:
        """Draw numbers of turns `[groups, size]`, each in [1, max_turns]."""
        if self.turns in (1.0, self.max_turns):
            return np.full((groups, size), int(self.turns))
        return np.minimum(rng.geometric(self._last_turn(), (groups, size)), self.max_turns)

    def _last_turn(self) -> float:
        """The probability p that a turn is the last, from E[min(G, M)] = (1 − (1 − p)^M)/p for G geometric, M = max."""
        from scipy.optimize import brentq  # takes most of a second

        most, mean = self.max_turns, self.turns
        # Between its slope at 0, where the mean is M − p·M(M − 1)/2 at least, and the p of no maximum.
        low = 1e-3 * (most - mean) / (most * most)
        return float(brentq(lambda p: -math.expm1(most * math.log1p(-p)) / p - mean, low, 1.0 / mean, xtol=1e-16))

    def moments(self) -> tuple[float, float]:
        """Return E[L] and E[L²] of the capped response length, in tokens and tokens², by quadrature."""
        nodes = (np.arange(20_000) + 0.5) / 20_000
        lengths = np.clip(self.lengths.quantile(ndtri(nodes)), 1, self.cap)
        return float(lengths.mean()), float((lengths**2).mean())


def wait_times(rng: np.random.Generator, mean: float, cv: float, size: int) -> Floats:
    """Draw `size` waits (s), log-normal with the given mean and coefficient of variation; all zero if mean = 0."""
    if mean == 0.0:
        return np.zeros(size)
    variance = math.log1p(cv**2)
    return mean * np.exp(math.sqrt(variance) * rng.standard_normal(size) - 0.5 * variance)
