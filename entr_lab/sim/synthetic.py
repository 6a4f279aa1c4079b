"""Token batches from synthetic logits: the same sampled tokens, seen by targets of several lags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.drift import Drift, lag_scale
from entr_lab.sim.logits import BaseLogits, entropy, sample_tokens
from entr_lab.sim.mismatch import Mismatch
from entr_lab.tokens import TokenBatch

__all__ = ["TokenSource", "chunks"]

_SEQUENCE: Final = 64
"""Tokens of a trajectory; only its advantage is shared, positions are independent."""
_GROUP: Final = 8
"""Trajectories of a prompt."""


def chunks(total: int, chunk: int) -> list[tuple[int, int]]:
    """Return (start, size) of pieces of at most `chunk` that cover `total`: what bounds `[N, V]` memory."""
    check_range("chunk", chunk, low=1)
    return [(start, min(chunk, total - start)) for start in range(0, total, chunk)]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """An engine at version 0 with its mismatch, and a trainer that has drifted `lag` versions since."""

    base: BaseLogits
    drift: Drift
    scale_per_version: float
    """Scale of the drift after one version; it grows in proportion to the lag."""
    mismatch: Mismatch
    chunk: int = 256
    """Positions held at once, each with a row of logits."""

    def draw(
        self,
        tokens: int,
        lags: Sequence[int],
        generator: torch.Generator,
        tick: Callable[[], None] = lambda: None,
    ) -> dict[int, TokenBatch]:
        """Return lag → batch of float32 columns; all batches hold the same tokens and behaviour records.

        Tokens are sampled from the engine's distribution, H is that distribution's, and advantages are ±1 per
        trajectory, both equally likely.

        Args:
            tokens: tokens per batch.
            lags: versions between the behaviour policy and the target.
            generator: source of positions, samples, mismatch and advantages.
            tick: called after each chunk.
        """
        check_range("tokens", tokens, low=1)
        columns = torch.empty(2 + len(lags), tokens)
        for start, size in chunks(tokens, self.chunk):
            columns[:, start : start + size] = torch.stack(self._columns(size, lags, generator))
            tick()
        logp_mu, entropy_mu, *logp_pi = columns
        sequence = torch.arange(tokens) // _SEQUENCE
        sign = 2.0 * torch.randint(2, (int(sequence[-1]) + 1,), generator=generator) - 1.0
        return {
            lag: TokenBatch(
                logp_pi=target,
                logp_mu=logp_mu,
                entropy_mu=entropy_mu,
                advantage=sign[sequence],
                sequence=sequence,
                group=sequence // _GROUP,
                weight_version=torch.zeros_like(sequence),
                target_version=lag,
            )
            for lag, target in zip(lags, logp_pi, strict=True)
        }

    def _columns(self, size: int, lags: Sequence[int], generator: torch.Generator) -> list[Tensor]:
        """Return log μ as recorded, H, and log π for each lag; `[size]` each.

        float32 throughout, as engines and trainers compute log-probabilities: 1e-6 nats, far below bf16's 4e-2.
        """
        logits = self.base.draw(size, generator, dtype=torch.float32)
        direction = self.drift.direction(logits, generator)
        engine = torch.log_softmax(self.mismatch.engine_logits(logits, generator), -1)
        engine_probs = engine.exp()
        index = sample_tokens(engine_probs, generator)

        def at(values: Tensor) -> Tensor:
            return values.gather(-1, index).squeeze(-1)

        columns = [self.mismatch.recorded(at(engine), generator), entropy(engine)]
        for lag in lags:
            shift = lag_scale(self.scale_per_version, lag) * direction
            columns.append(at(torch.log_softmax(logits + shift, -1)))
        return columns
