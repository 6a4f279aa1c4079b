"""Does what is trained on differ from what was dispatched? Length, difficulty, latency, source.

Dropping what is stale drops what was long: the trained distribution shifts towards short, fast and easy, and no loss
curve shows it. The unit here is the prompt group (rollouts of one prompt are dropped together and are not independent).

For a number x per group, with T trained and D dropped groups, n = T + D dispatched:

    shift = mean_T - mean_(T and D) = (D / n) (mean_T - mean_D),     95 % interval by Welch's t on mean_T - mean_D.

For sources, the shift is in the share of each, with a normal interval, Bonferroni-corrected over the sources.
Where the interval holds 0 the answer is "not distinguishable".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, variance

from entr_lab.pipeline.decisions import DropReason
from entr_lab.pipeline.records import Group

__all__ = ["DropBias", "Shift", "mean_shift", "share_shift"]

_FEWEST = 5
"""Groups needed on either side before an interval means anything."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One row of the report.

    Attributes:
        name: the column, or `source=…` for the share of a source.
        trained: mean (or share) over trained groups.
        dispatched: mean (or share) over all groups that are over.
        shift: trained - dispatched.
        low, high: its 95 % interval; NaN where there are too few groups.
    """

    name: str
    trained: float
    dispatched: float
    shift: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """`higher`, `lower`, `not distinguishable`, or `too few groups`."""
        if math.isnan(self.low):
            return "too few groups"
        if self.low <= 0 <= self.high:
            return "not distinguishable"
        return "higher" if self.shift > 0 else "lower"


@dataclass(slots=True)
class DropBias:
    """Collects groups as they are over (pass `add` as the pipeline's `closed`) and reports the shifts.

    The length of a group is the mean over its rollouts. A rollout that was stopped counts with the tokens that it is
    known to have had, which makes dropped groups look shorter than they were: a reported shift towards short
    is then on the small side. Groups of which no token is known are left out of the length and counted in `unknown`.
    """

    length: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    difficulty: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    latency: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    source: dict[str, list[int]] = field(default_factory=dict)
    unknown: int = 0

    def add(self, group: Group, reason: DropReason | None) -> None:
        """Count one group that is over: trained (None) or dropped."""
        side = 0 if reason is None else 1
        known = len(group.done) + len(group.cut)
        if known:
            finished = sum([stop - start for t in group.done for _, start, stop in t.spans])
            self.length[side].append((finished + sum(group.cut)) / known)
        else:
            self.unknown += 1
        self.difficulty[side].append(group.prompt.difficulty)
        if group.settled >= 0:
            self.latency[side].append(group.settled - group.opened)
        self.source.setdefault(group.prompt.source, [0, 0])[side] += 1

    def report(self) -> list[Shift]:
        """Return one row per column and per source."""
        rows = [
            mean_shift("length", *self.length),
            mean_shift("difficulty", *self.difficulty),
            mean_shift("latency", *self.latency),
        ]
        trained = sum(count for count, _ in self.source.values())
        dropped = sum(count for _, count in self.source.values())
        for name, (t, d) in sorted(self.source.items()):
            rows.append(share_shift(f"source={name}", t, trained, d, dropped, tests=len(self.source)))
        return rows


def mean_shift(name: str, trained: Sequence[float], dropped: Sequence[float]) -> Shift:
    """Return the shift of a mean, with Welch's interval scaled by the dropped fraction."""
    t, d = len(trained), len(dropped)
    mean_t = fmean(trained) if t else math.nan
    mean_all = (math.fsum(trained) + math.fsum(dropped)) / (t + d) if t + d else math.nan
    shift = mean_t - mean_all if d else 0.0 * mean_t
    if min(t, d) < _FEWEST:
        return Shift(name, mean_t, mean_all, shift, math.nan, math.nan)
    part_t, part_d = variance(trained) / t, variance(dropped) / d
    error = math.sqrt(part_t + part_d)
    if error == 0:
        return Shift(name, mean_t, mean_all, shift, shift, shift)
    freedom = (part_t + part_d) ** 2 / (part_t**2 / (t - 1) + part_d**2 / (d - 1))
    half = _t_quantile(0.975, freedom) * error * d / (t + d)
    return Shift(name, mean_t, mean_all, shift, shift - half, shift + half)


def share_shift(name: str, t: int, trained: int, d: int, dropped: int, *, tests: int = 1) -> Shift:
    """Return the shift of a share: `t` of `trained` groups against `d` of `dropped` ones, one of `tests` such rows."""
    share_t = t / trained if trained else math.nan
    share_all = (t + d) / (trained + dropped) if trained + dropped else math.nan
    shift = share_t - share_all if dropped else 0.0 * share_t
    if min(trained, dropped) < _FEWEST:
        return Shift(name, share_t, share_all, shift, math.nan, math.nan)
    # Half a count on either side keeps the error away from 0 where a share is 0 or 1.
    p, q = (t + 0.5) / (trained + 1), (d + 0.5) / (dropped + 1)
    error = math.sqrt(p * (1 - p) / trained + q * (1 - q) / dropped)
    half = NormalDist().inv_cdf(1 - 0.025 / tests) * error * dropped / (trained + dropped)
    if tests == 1:
        half = 0.0  # one source: its share is 1 by definition
    return Shift(name, share_t, share_all, shift, shift - half, shift + half)


def _t_quantile(p: float, freedom: float) -> float:
    # Cornish-Fisher expansion of Student's quantile about the normal one; within 0.5 % from 4 degrees of freedom on.
    z, v = NormalDist().inv_cdf(p), freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )
