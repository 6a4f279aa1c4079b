"""Seeded batches made of what breaks rules in practice, and the few ways to vary them.

δ = 0, probabilities that round to 1, H = 0, exact ties, records that are not finite, sequences of one token,
advantages of 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from entr_lab.tokens import Column, TokenBatch

__all__ = ["COLUMNS", "FLOATS", "adversarial_batch", "cast", "column", "one_per_run", "repeat", "split", "take"]

COLUMNS: Final = tuple(column.value for column in Column)
FLOATS: Final = ("logp_pi", "logp_mu", "entropy_mu", "advantage", "logp_prox", "collision_mu")


def adversarial_batch(
    seed: int,
    n_tokens: int = 96,
    *,
    runs: tuple[int, ...] = (),
    spoiled: bool = True,
    dtype: torch.dtype = torch.float32,
) -> TokenBatch:
    """Return a seeded batch with every optional column.

    Args:
        seed: of a generator of its own; the global generator is not touched.
        n_tokens: N.
        runs: leading axes.
        spoiled: whether one token in six has a NaN or infinite record.
        dtype: of the floating columns.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (*runs, n_tokens)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(shape, generator=generator)

    def pick(*choices: Tensor) -> Tensor:
        which = torch.randint(len(choices), shape, generator=generator)
        return torch.stack(choices).gather(0, which.unsqueeze(0)).squeeze(0)

    sign = pick(torch.ones(shape), -torch.ones(shape))
    normal = torch.randn(shape, generator=generator)
    columns = {"logp_mu": pick(uniform(-2.0, 0.0), -(10.0 ** uniform(-9.0, -1.0)), uniform(-20.0, 0.0))}
    columns["entropy_mu"] = pick(torch.zeros(shape), 10.0 ** uniform(-8.0, 0.0), uniform(0.0, 4.0), uniform(0.0, 1.0))
    drift = pick(torch.zeros(shape), 0.05 * normal, 0.5 * normal, 2.0 * normal, sign * 10.0 ** uniform(-7.0, 1.3))
    columns["logp_pi"] = (columns["logp_mu"] + drift).clamp(max=0.0)
    columns["advantage"] = pick(torch.zeros(shape), sign, uniform(-2.0, 2.0), -sign * uniform(0.0, 1.0))
    floor = (-columns["entropy_mu"]).exp()  # Σμ² ≥ e^{−H}, with equality where μ is uniform on its support
    columns["collision_mu"] = floor + (1.0 - floor) * uniform(0.0, 1.0)
    columns["logp_prox"] = columns["logp_mu"] + uniform(0.0, 1.0) * (columns["logp_pi"] - columns["logp_mu"])

    # One token in five repeats another one exactly: ties are common where probabilities round.
    source = torch.randint(n_tokens, shape, generator=generator)
    tied = uniform(0.0, 1.0) < 0.2
    columns = {name: torch.where(tied, value.gather(-1, source), value) for name, value in columns.items()}
    if spoiled:
        nan, inf = torch.full(shape, math.nan), torch.full(shape, math.inf)
        for name in ("logp_pi", "logp_mu", "entropy_mu"):
            columns[name] = torch.where(uniform(0.0, 1.0) < 0.06, pick(nan, inf, -inf), columns[name])
    starts = (uniform(0.0, 1.0) < 0.15).long()
    starts[..., 0] = 0
    sequence = starts.cumsum(-1)
    return TokenBatch(
        **{name: value.to(dtype) for name, value in columns.items()},
        sequence=sequence,
        group=sequence // 3,
        weight_version=torch.randint(0, 31, shape, generator=generator),
        turn=torch.randint(0, 4, shape, generator=generator),
        target_version=30,
    )


def column(batch: TokenBatch, name: str) -> Tensor:
    """Return a column that an adversarial batch always has."""
    found: Tensor = getattr(batch, name)
    return found


def take(batch: TokenBatch, index: Tensor) -> TokenBatch:
    """Select tokens by position."""
    return replace(batch, **{name: column(batch, name)[..., index] for name in COLUMNS})


def cast(batch: TokenBatch, dtype: torch.dtype) -> TokenBatch:
    """Convert the floating columns that there are."""
    found = {name: values for name in FLOATS if (values := getattr(batch, name)) is not None}
    return replace(batch, **{name: values.to(dtype) for name, values in found.items()})


def one_per_run(batch: TokenBatch) -> TokenBatch:
    """Return `[N, 1]`: every token of a batch `[N]` as a run of its own."""
    return replace(batch, **{name: column(batch, name).unsqueeze(-1) for name in COLUMNS})


def repeat(batch: TokenBatch, n_runs: int) -> TokenBatch:
    """Return `[n_runs, N]`: the batch `[N]`, as often as asked."""
    return replace(batch, **{name: column(batch, name).expand(n_runs, -1).contiguous() for name in COLUMNS})


def split(batch: TokenBatch, n_parts: int, *, whole_sequences: bool) -> list[TokenBatch]:
    """Cut the token axis into `n_parts` neighbouring pieces, of whole sequences if asked (then perhaps fewer)."""
    if whole_sequences:
        _, lengths = torch.unique_consecutive(batch.sequence, return_counts=True)
        edges = [0, *lengths.cumsum(0).tolist()]
    else:
        edges = list(range(batch.n_tokens + 1))
    n_units = len(edges) - 1
    cuts = sorted({edges[n_units * part // n_parts] for part in range(n_parts + 1)})
    return [batch.block(start, stop - start) for start, stop in pairwise(cuts)]
