"""What the open loop is asked, and what it answers: plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from entr_lab.errors import ConfigError, check_choice, check_range
from entr_lab.rules import Entr
from entr_lab.sim.drift import DRIFTS
from entr_lab.sim.logits import BaseLogits
from entr_lab.sim.mismatch import Mismatch
from entr_lab.sim.scaling import Estimate
from entr_lab.sim.versions_mix import VersionMix

__all__ = [
    "AttributionRow",
    "BudgetCell",
    "BudgetRow",
    "JumpRow",
    "LeakCheck",
    "OpenLoopConfig",
    "OpenLoopResult",
    "OutlierRow",
    "SlopeRow",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoopConfig:
    """Sizes and settings of the open loop; the defaults finish in well under half a minute on two cores."""

    base: BaseLogits = field(default_factory=BaseLogits)
    drifts: tuple[str, ...] = tuple(DRIFTS)
    """Drift models of the slope and outlier tables."""
    positions: int = 16_384
    """Positions per seed of the exact tables."""
    target_rms: float = 0.1
    """RMS δ, nats, to which every drift model is scaled before slopes are compared."""
    entropy_low: float = 5e-3
    """Smallest H, nats, of a slope: a tenth of the positions lie below, too few for a bin."""
    entropy_split: float = 0.1
    """Where the low range of H ends and the high one starts."""
    entropy_high: float = 3.0
    """Largest H of a slope."""
    second_moment: float = 0.03
    """E[δ²] of the shared-feature drift after `second_moment_lag` versions, nats²: sets the drift per version."""
    second_moment_lag: int = 30
    lags: tuple[int, ...] = (0, 5, 30)
    """Versions of staleness of the matched-budget table, ascending."""
    raised_temperature: float = 1.4
    """Temperature of the second block of the matched-budget table: the same rules when entropy has risen."""
    mismatch: Mismatch = field(default_factory=lambda: Mismatch(bf16=True, record=1e-5))
    """Train–inference mismatch of the matched-budget and attribution tables."""
    flips: Mismatch = field(default_factory=lambda: Mismatch(bf16=False, flip_prob=0.01, flip_scale=1.0))
    """Routing flips of the outlier table."""
    calibration_tokens: int = 49_152
    """Tokens of the step-0 batch."""
    later_tokens: int = 16_384
    """Tokens of each later batch."""
    reference: Entr = field(default_factory=lambda: Entr(tau=1.0, eps=0.1))
    """The rule whose own masked fraction at step 0 is everyone's budget."""
    mix: VersionMix = field(default_factory=lambda: VersionMix(intra=8, inter=22))
    """Version mixture of the attribution table."""
    top_p: float = 0.95
    """Nucleus of the truncation check."""
    chunk: int = 256
    """Positions held at once: a few `[chunk, vocab]` arrays should fit in the processor's cache."""

    def __post_init__(self) -> None:
        check_range("number of drift models", len(self.drifts), low=1)
        for name in self.drifts:
            check_choice("drift model", name, DRIFTS)
        for name in ("positions", "calibration_tokens", "later_tokens", "chunk", "second_moment_lag"):
            check_range(name, getattr(self, name), low=1)
        for name in ("target_rms", "entropy_low", "second_moment", "raised_temperature"):
            check_range(name, getattr(self, name), low=0.0, low_open=True)
        check_range("entropy_split", self.entropy_split, low=self.entropy_low, low_open=True)
        check_range("entropy_high", self.entropy_high, low=self.entropy_split, low_open=True)
        check_range("top_p", self.top_p, low=0.0, low_open=True, high=1.0)
        if not self.lags or min(self.lags) < 0 or self.lags[-1] == 0 or list(self.lags) != sorted(set(self.lags)):
            raise ConfigError(f"lags must ascend from 0 or more to 1 or more, got {self.lags}; sort them.")


@final
@dataclass(frozen=True, slots=True)
class SlopeRow:
    """Slopes of log size against log H under one drift model; intervals by bootstrap over positions."""

    drift: str
    scale: float
    """Scale that gives the target RMS."""
    rms_low: Estimate
    """Slope of √E[δ²] below the split."""
    rms_high: Estimate
    """The same above the split."""
    rms_all: Estimate
    """The same over the whole range."""
    abs_all: Estimate
    """Slope of E|δ| over the whole range."""


@final
@dataclass(frozen=True, slots=True)
class OutlierRow:
    """One group of tokens under one cause; intervals over seeds."""

    cause: str
    group: str
    share: Estimate
    mean_abs: Estimate
    mean_z: Estimate


@final
@dataclass(frozen=True, slots=True)
class JumpRow:
    """RMS change of log μ(y) at a switch to the next version, for positions with low ≤ H < high, nats."""

    low: float
    high: float
    rms: Estimate


@final
@dataclass(frozen=True, slots=True)
class BudgetCell:
    """What a rule masks at one lag and temperature."""

    lag: int
    temperature: float
    masked_frac: Estimate
    excess: Estimate
    """masked_frac minus that of the calibrated reference rule on the same tokens: paired by seed."""
    removed_entropy: Estimate
    """Mean H of what it removes; NaN where it removes nothing in any seed."""


@final
@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One rule of the matched-budget table."""

    rule: str
    calibrated: bool
    """False: the rule as its paper sets it, for comparison."""
    scale: Estimate
    """Factor on the threshold; 1 if not calibrated."""
    cells: tuple[BudgetCell, ...]


@final
@dataclass(frozen=True, slots=True)
class LeakCheck:
    """Top-p sampling seen by a trainer that does not truncate."""

    top_p: float
    mean_offset: Estimate
    """Mean of δ = log(kept mass) over positions, nats."""
    worst_error: float
    """Largest |δ(y) − log(kept mass)| over all kept tokens: the leak is constant at a position."""


@final
@dataclass(frozen=True, slots=True)
class AttributionRow:
    """One part of δ under version mixture; `rms` in nats, `share` is E[part · δ]/E[δ²], and shares sum to one."""

    part: str
    rms: Estimate
    share: Estimate


@final
@dataclass(frozen=True, slots=True)
class OpenLoopResult:
    """All tables of one run."""

    config: OpenLoopConfig
    seeds: tuple[int, ...]
    slopes: tuple[SlopeRow, ...]
    outliers: tuple[OutlierRow, ...]
    jumps: tuple[JumpRow, ...]
    budget: tuple[BudgetRow, ...]
    step0_frac: Estimate
    """The budget: masked fraction of the reference rule on the step-0 batch."""
    leak: LeakCheck
    attribution: tuple[AttributionRow, ...]
    telescoping_error: float
    """Largest |mismatch + intra + inter − δ| over tokens and seeds, nats."""
