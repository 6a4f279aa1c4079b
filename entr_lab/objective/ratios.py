"""Which policy stands under the ratio: the anchor, the piece that peers leave implicit.

With x the surrogate's log-ratio (it carries the gradient) and c the detached correction that remains between the
anchor and μ, the total log-ratio is δ = x + c.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch import Tensor

from entr_lab.errors import ConfigError
from entr_lab.tokens import TokenBatch, promote

__all__ = ["Anchor", "LogRatios", "log_ratios"]


class Anchor(StrEnum):
    """The policy that the surrogate's ratio divides by.

    `behaviour`: r = π_θ/μ, two policies (the ENTR paper and its baselines).
    `proximal`: r = π_θ/π_prox, three policies, with π_prox/μ left as the correction (decoupled PPO, IcePop's own form).
    `current`: r = π_θ/stopgrad(π_θ) = 1, the on-policy gradient of a synchronous update.
    """

    BEHAVIOUR = "behaviour"
    PROXIMAL = "proximal"
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class LogRatios:
    """Log-ratios of one batch, `[..., N]`, nats.

    Args:
        surrogate: x, log-ratio to the anchor, with gradient.
        correction: c = log anchor − log μ, detached; zero where the anchor is μ or the current policy.
        mismatch: m, detached, the log-ratio that a truncated weight truncates: δ under the behaviour anchor, c else.
    """

    surrogate: Tensor
    correction: Tensor
    mismatch: Tensor


def log_ratios(batch: TokenBatch, anchor: Anchor) -> LogRatios:
    """Return the log-ratios of `batch` under `anchor`.

    Raises:
        ConfigError: the proximal anchor is asked for and the batch has no `logp_prox`.
    """
    logp_pi = promote(batch.logp_pi)
    if anchor is Anchor.BEHAVIOUR:
        log_ratio = batch.log_ratio
        detached = log_ratio.detach()
        return LogRatios(log_ratio, detached.new_zeros(()), detached)
    if anchor is Anchor.CURRENT:
        zero = logp_pi.new_zeros(())
        return LogRatios(logp_pi - logp_pi.detach(), zero, zero)
    if batch.logp_prox is None:
        raise ConfigError("the proximal anchor needs logp_prox, which this batch lacks; record it or anchor on μ.")
    logp_prox = promote(batch.logp_prox)
    correction = logp_prox - promote(batch.logp_mu)
    return LogRatios(logp_pi - logp_prox, correction, correction)
