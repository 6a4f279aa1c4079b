"""Base logits with the entropy profile of a language model, and exact expectations under them.

About half of the positions are nearly deterministic and a fifth are open choices, as in maths and tool calls.
A position has a Gaussian tail over the vocabulary and a few candidates that stand out of it; how far the best
candidate leads decides the entropy. Everything here is ours; logits and expectations are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from entr_lab.errors import check_range

__all__ = ["BaseLogits", "entropy", "log_ratio_of_shift", "normal_noise", "sample_tokens", "seeded_generator"]


def seeded_generator(seed: int, *stream: int) -> torch.Generator:
    """Return a generator for one seed and one named stream; distinct streams are independent.

    Args:
        seed: the user's seed, any non-negative integer.
        stream: integers that name the purpose, so that one experiment's numbers do not depend on another.
    """
    state = np.random.SeedSequence([seed, *stream]).generate_state(1, np.uint64)[0]
    # torch takes a signed 64-bit seed, so the top bit goes
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def normal_noise(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return N(0, 1) noise, `shape`.

    Drawn in float32, which torch does five times faster on a CPU: noise needs no more digits.
    """
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(dtype)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BaseLogits:
    """Distribution of the logits of a position, `[N, vocab]`, float64.

    The tail is `tail_sd`·N(0, 1).  `candidates` tokens replace it: the best one at
    logsumexp(tail) + 3 + 0.6 c, the others below it by c·(0.6 + 0.4·Exp(1)).  The contrast c is
    N(9, 3²) for four positions in five and 2 + |N(0, 1)| for the fifth, kept in [0.3, 20].
    The largest logit lands near `top_logit`: softmax does not see a common shift, but bf16 rounding does.
    Gaps to it are divided by `temperature`.
    """

    vocab: int = 1024
    """Number of tokens in the vocabulary."""
    candidates: int = 8
    """Tokens that stand out of the tail."""
    tail_sd: float = 1.5
    """Standard deviation of the tail's logits."""
    open_share: float = 0.2
    """Share of the positions that are open choices."""
    top_logit: float = 20.0
    """Where the largest logit lies, up to ±1 so that it is no grid point of bf16."""

    temperature: float = 1.0
    """Above 1, a policy of higher entropy: 1.4 raises the mean from 0.42 to 0.95 nats."""

    def __post_init__(self) -> None:
        check_range("temperature", self.temperature, low=0.0, low_open=True)
        check_range("candidates", self.candidates, low=2)
        check_range("vocab", self.vocab, low=self.candidates + 1)
        check_range("tail_sd", self.tail_sd, low=0.0)
        check_range("open_share", self.open_share, low=0.0, high=1.0)
        check_range("top_logit", self.top_logit, low=-1e4, high=1e4)

    def draw(self, positions: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return the logits of `positions` independent positions, `[positions, vocab]`.

        They are drawn in float32, several times faster on a CPU; what is drawn is then exact by definition.
        """
        check_range("positions", positions, low=1)
        n = positions

        def normal(width: int) -> Tensor:
            return torch.randn(n, width, generator=generator, dtype=torch.float32)

        def uniform(width: int) -> Tensor:
            return torch.rand(n, width, generator=generator, dtype=torch.float32)

        logits = normal(self.vocab).mul_(self.tail_sd)
        is_open, bell = uniform(1) < self.open_share, normal(1)
        contrast = torch.where(is_open, 2 + bell.abs(), 9 + 3 * bell).clamp(0.3, 20)
        gap = contrast * (0.6 - 0.4 * torch.log1p(-uniform(self.candidates)))
        gap[:, 0] = 0
        top = logits.logsumexp(-1, keepdim=True) + 3 + 0.6 * contrast
        logits.scatter_(-1, self._candidate_ids(n, generator), top - gap)
        level = self.top_logit + 2 * uniform(1) - 1
        return logits.sub_(logits.amax(-1, keepdim=True)).div_(self.temperature).add_(level).to(dtype)

    def _candidate_ids(self, n: int, generator: torch.Generator) -> Tensor:
        """Return distinct token ids in random order, `[n, candidates]`, by Floyd's method."""
        ids = torch.empty(n, self.candidates, dtype=torch.int64)
        for j in range(self.candidates):
            last = self.vocab - self.candidates + j
            pick = torch.randint(last + 1, (n,), generator=generator)
            taken = (ids[:, :j] == pick[:, None]).any(-1)
            ids[:, j] = torch.where(taken, last, pick)
        order = torch.rand(n, self.candidates, generator=generator).argsort(-1)
        return ids.gather(-1, order)


def entropy(log_probs: Tensor) -> Tensor:
    """Return −Σ p log p in nats, `[..., V]` → `[...]`; tokens of probability 0 (log −inf) add nothing."""
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)  # 0 · finite is 0, where 0 · −inf is NaN
    return -(finite * log_probs.exp()).sum(-1)


def log_ratio_of_shift(probs: Tensor, shift: Tensor) -> Tensor:
    """Return δ = Δ − log E_μ[e^Δ] for every token, where the target is softmax(log μ + Δ).

    This form has no cancellation: δ keeps its relative accuracy when Δ is tiny, where the difference of two
    log-probabilities would lose it.  Theory, section "one position".

    Args:
        probs: μ, `[..., V]`, float64, rows summing to one.
        shift: Δ, `[..., V]`, the change of the logits.
    """
    return shift - torch.log1p(torch.linalg.vecdot(probs, torch.expm1(shift)).unsqueeze(-1))


def sample_tokens(probs: Tensor, generator: torch.Generator, *, draws: int = 1) -> Tensor:
    """Return independent draws y ~ `probs` per position, `[..., V]` → `[..., draws]` int64."""
    cdf = probs.cumsum(-1)
    uniform = torch.rand(*probs.shape[:-1], draws, generator=generator, dtype=probs.dtype)
    return torch.searchsorted(cdf, uniform * cdf[..., -1:], right=True).clamp_max(probs.shape[-1] - 1)
