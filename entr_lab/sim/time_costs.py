"""What decoding, a trainer step and a weight update cost, in seconds; `entr_lab.sim.service` says how they are used."""

from __future__ import annotations

from dataclasses import dataclass

from entr_lab.errors import check_range

__all__ = ["EngineCosts", "SyncCosts", "TrainerCosts"]


@dataclass(frozen=True, slots=True)
class EngineCosts:
    """What one generator's steps cost, in seconds.

    `base[b]` is τ(b, 0) for b = 0 … slots running sequences; `kv` is κ, per token of context; `prefill` per
    prompt token.
    """

    base: tuple[float, ...]
    kv: float
    prefill: float

    def __post_init__(self) -> None:
        check_range("the number of slots of a generator", len(self.base) - 1, low=1)
        check_range("the time of a decode step", min(self.base[1:]), low=0, low_open=True)
        check_range("the cost of a cached token", self.kv, low=0)
        check_range("the cost of a prefilled token", self.prefill, low=0)

    @property
    def slots(self) -> int:
        """Most sequences that run at once."""
        return len(self.base) - 1

    def seconds_per_token(self, running: int, context: float) -> float:
        """Return τ(b, K)/b, the engine's seconds per emitted token."""
        return (self.base[running] + self.kv * context) / running

    def scaled(self, factor: float) -> EngineCosts:
        """Return these costs times `factor` > 0."""
        return EngineCosts(tuple(factor * seconds for seconds in self.base), factor * self.kv, factor * self.prefill)

    @classmethod
    def linear(
        cls, fixed: float, per_sequence: float, slots: int, *, kv: float = 0.0, prefill: float = 0.0
    ) -> EngineCosts:
        """Costs with base[b] = fixed + per_sequence·b."""
        return cls(tuple(fixed + per_sequence * batch for batch in range(slots + 1)), kv, prefill)


@dataclass(frozen=True, slots=True)
class TrainerCosts:
    """Seconds of a trainer step: `fixed` + `per_token` · tokens of the batch (prompt and response)."""

    fixed: float
    per_token: float

    def __post_init__(self) -> None:
        check_range("the fixed time of a trainer step", self.fixed, low=0)
        check_range("the trainer's time per token", self.per_token, low=0)

    def step(self, tokens: float) -> float:
        """Return the seconds of one step over `tokens` tokens."""
        return self.fixed + self.per_token * tokens

    def scaled(self, factor: float) -> TrainerCosts:
        """Return these costs times `factor` > 0."""
        return TrainerCosts(factor * self.fixed, factor * self.per_token)


@dataclass(frozen=True, slots=True)
class SyncCosts:
    """A weight update: `transfer` seconds during which generators are paused and the trainer is held."""

    transfer: float
    recompute_kv: bool = True
    """Whether a generator prefills its running contexts again under the new weights, or keeps the old cache."""

    def __post_init__(self) -> None:
        check_range("the time of a weight transfer", self.transfer, low=0)
