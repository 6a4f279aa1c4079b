"""Rules compared at one masked fraction: calibrate on one batch, then leave the threshold alone.

The protocol of the paper's Table 3. Two rules that mask different shares of the tokens cannot be compared by what
they mask; here every rule's threshold is scaled until it masks the budget on a step-0 batch, where only
train–inference mismatch acts, and is frozen from then on. What it masks later is then the rule's own doing.
Nothing here knows how the batches were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, final

from torch import Tensor

from entr_lab.errors import DataError, RangeError, check_range
from entr_lab.rules import KeepRule
from entr_lab.rules.base import Reduce, local
from entr_lab.tokens import TokenBatch

__all__ = ["Calibrated", "Masked", "calibrate", "masked", "matched_budget"]

Label = TypeVar("Label", bound=Hashable)

_MAX_DOUBLINGS: Final = 64
_MAX_BISECTIONS: Final = 80
"""Enough to bring a bracket of 2⁶⁴ down to neighbouring float64 numbers."""


@final
@dataclass(frozen=True, slots=True)
class Masked:
    """What a rule drops from a batch."""

    n_masked: int
    """Usable tokens that the rule drops."""
    n_tokens: int
    """Usable tokens (`batch.valid`)."""
    removed_entropy: float
    """Mean H of the dropped tokens, nats; NaN if none is dropped."""

    @property
    def masked_frac(self) -> float:
        """1 − kept/usable: the paper's ρ_mask."""
        return self.n_masked / self.n_tokens


@final
@dataclass(frozen=True, slots=True)
class Calibrated:
    """A rule whose threshold was turned until it masks the budget."""

    rule: KeepRule
    """The rule to use from now on, with its threshold scaled."""
    scale: float
    """Factor that was put on the threshold."""
    reached: Masked
    """What it masks on the calibration batch: the budget within one token, unless scores are tied."""


def masked(rule: KeepRule, batch: TokenBatch, *, reduce: Reduce = local) -> Masked:
    """Apply a rule to a batch; tokens of all leading runs are counted together.

    Raises:
        DataError: the batch has no usable token.
    """
    valid = batch.valid
    dropped: Tensor = valid & ~rule.keep(batch, reduce)
    if not valid.any():
        raise DataError("no token of the batch has a finite behaviour record; check what the engine returns.")
    n_masked = int(dropped.sum())
    mean = float(batch.entropy_mu[dropped].double().mean()) if n_masked else math.nan
    return Masked(n_masked, int(valid.sum()), mean)


def calibrate(rule: KeepRule, batch: TokenBatch, budget: float, *, reduce: Reduce = local) -> Calibrated:
    """Scale the rule's threshold so that it masks the fraction `budget` of the batch.

    The number of masked tokens falls as the threshold grows, so it is found by bisection. Tokens with equal scores
    leave together: if no threshold masks the wanted number, the nearest number is taken, the smaller of two equals.

    Args:
        rule: any rule whose `scaled` moves its threshold.
        batch: the step-0 batch, whole.
        budget: masked fraction, in (0, 1); it must amount to at least one token.
        reduce: as in `KeepRule.keep`.

    Raises:
        RangeError: `budget` is outside (0, 1).
        DataError: the budget is below half a token of this batch, or no threshold of this rule brackets it.
    """
    check_range("budget", budget, low=0.0, high=1.0, low_open=True, high_open=True)
    trials: dict[float, Masked] = {}

    def count(scale: float) -> int:
        if scale not in trials:
            trials[scale] = masked(rule.scaled(scale), batch, reduce=reduce)
        return trials[scale].n_masked

    wanted = round(budget * int(batch.valid.sum()))
    if wanted == 0:
        raise DataError(f"a budget of {budget:g} is less than one token of this batch; calibrate on more tokens.")
    loose, tight = _bracket(rule, count, wanted)
    for _ in range(_MAX_BISECTIONS):
        if count(loose) == wanted or not tight < (middle := math.sqrt(loose * tight)) < loose:
            break
        if count(middle) <= wanted:
            loose = middle
        else:
            tight = middle
    scale = loose if wanted - count(loose) <= count(tight) - wanted else tight
    return Calibrated(rule.scaled(scale), scale, trials[scale])


def _bracket(rule: KeepRule, count: Callable[[float], int], wanted: int) -> tuple[float, float]:
    """Return (loose, tight) scales with count(loose) ≤ wanted ≤ count(tight), at most a factor 2 apart."""
    scale, factor = 1.0, (0.5 if count(1.0) <= wanted else 2.0)
    for _ in range(_MAX_DOUBLINGS):
        previous, scale = scale, scale * factor
        try:
            found = count(scale)
        except RangeError:
            break  # the threshold has left the rule's own domain
        if factor < 1 and found >= wanted:
            return previous, scale
        if factor > 1 and found <= wanted:
            return scale, previous
    raise DataError(
        f"no threshold of rule {rule.name!r} masks {wanted} tokens of this batch (it masks {count(1.0)} as given); "
        f"the rule has no threshold or the batch no spread: leave it out or calibrate on another batch."
    )


def matched_budget(
    rules: Mapping[str, KeepRule],
    step0: TokenBatch,
    later: Mapping[Label, TokenBatch],
    budget: float,
    *,
    reduce: Reduce = local,
) -> dict[str, tuple[Calibrated, dict[Label, Masked]]]:
    """Calibrate every rule on `step0` and apply it, unchanged, to the later batches.

    Args:
        rules: label → rule.
        step0: the calibration batch.
        later: label → batch.
        budget: masked fraction on `step0`.
        reduce: as in `KeepRule.keep`.

    Returns:
        rule label → (the calibrated rule, batch label → what it masks there).

    Raises:
        RangeError, DataError: as `calibrate`.
    """
    table: dict[str, tuple[Calibrated, dict[Label, Masked]]] = {}
    for label, rule in rules.items():
        fitted = calibrate(rule, step0, budget, reduce=reduce)
        table[label] = fitted, {name: masked(fitted.rule, batch, reduce=reduce) for name, batch in later.items()}
    return table
