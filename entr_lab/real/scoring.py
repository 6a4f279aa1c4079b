"""Log-prob, entropy and Σπ² of given tokens under the trainer's weights, without a float32 `[N, V]` in memory.

At a vocabulary of 150 000 the softmax of 16 000 tokens is 9 GiB in float32, and autograd would keep several. Here the
output layer and the softmax run over chunks of positions; the backward pass keeps only the hidden states and one
normaliser a token, and recomputes each chunk:

    log π(y) = z_y − lse,   H = lse − Σ π z,   Σπ² = Σ exp(2 (z − lse)),   ∂ log π(y) / ∂ z = (e_y − π) / T,

with z the logits divided by the temperature T. Entropy and Σπ² carry no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from entr_lab.errors import EngineError, check_range
from entr_lab.real.packing import PackedTokens, assemble, pack
from entr_lab.real.records import Rollout

__all__ = ["Scorer", "TokenScores", "score_hidden"]

_CHUNK_ELEMENTS: Final = 1 << 24
"""Logits held at a time: 64 MiB in float32."""
_DENSE_MASK: Final = ("sdpa", "eager")
"""Implementations of attention whose cost is the square of a row's length, whatever is packed into it."""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Scores of the trainable tokens, `[N]` float32, in the order of `PackedTokens.targets`.

    Args:
        logp: log π(y) at the temperature, with gradient.
        entropy: full-vocabulary entropy, nats, detached.
        collision: Σ π², detached.
    """

    logp: Tensor
    entropy: Tensor
    collision: Tensor


class _ChunkedScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        parts = []
        for start in range(0, len(targets), chunk):
            logits = _logits(hidden[start : start + chunk], weight, bias, temperature)
            log_normaliser = logits.logsumexp(-1)
            logp = logits.gather(-1, targets[start : start + chunk, None])[:, 0] - log_normaliser
            log_probs = logits.sub_(log_normaliser[:, None])
            probs = log_probs.exp()
            collision = probs.square().sum(-1)
            # A logit of −∞ has π = 0 and adds nothing; 0·∞ would be NaN.
            entropy = -torch.where(probs > 0, log_probs.mul_(probs), 0.0).sum(-1)
            parts.append((logp, entropy, collision, log_normaliser))
        logp, entropy, collision, log_normaliser = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, targets, log_normaliser)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(entropy, collision)
        return logp, entropy.clamp_min_(0.0), collision

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logp: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_normaliser = ctx.saved_tensors
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight, dtype=torch.float32)
        d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for start in range(0, len(targets), ctx.chunk):
            stop = start + ctx.chunk
            here = hidden[start:stop]
            d_logits = _logits(here, weight, bias, ctx.temperature).sub_(log_normaliser[start:stop, None]).exp_().neg_()
            d_logits.scatter_add_(-1, targets[start:stop, None], torch.ones_like(d_logits[:, :1]))
            d_logits *= (grad_logp[start:stop] / ctx.temperature)[:, None]
            if d_bias is not None:
                d_bias += d_logits.sum(0)
            d_logits = d_logits.to(hidden.dtype)
            d_hidden[start:stop] = d_logits @ weight.to(hidden.dtype)
            d_weight += (d_logits.T @ here).float()
        d_bias = None if d_bias is None or bias is None else d_bias.to(bias.dtype)
        return d_hidden, d_weight.to(weight.dtype), d_bias, None, None, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = nn.functional.linear(hidden, weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype))
    logits = logits.float()
    return logits if temperature == 1.0 else logits.div_(temperature)


def score_hidden(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> TokenScores:
    """Score tokens from the hidden states that predict them.

    Args:
        hidden: `[N, D]`.
        weight: `[V, D]` output layer.
        targets: `[N]` int64.
        bias: `[V]` of the output layer, if it has one.
        temperature: T that the rollouts were sampled at.
        chunk: positions at a time; by default as many as keep the logits under 64 MiB.
    """
    check_range("temperature", temperature, low=0.0, low_open=True, high=float("inf"), high_open=True)
    size = chunk or max(16, _CHUNK_ELEMENTS // weight.shape[0])
    scores = _ChunkedScores.apply(hidden, weight, bias, targets, temperature, size)  # type: ignore[no-untyped-call]
    return TokenScores(*scores)


class Scorer(nn.Module):
    """Scores packed tokens with a Hugging Face causal language model.

    One module around the model, so that a sharded job gathers the weights of body and head in one forward pass.

    Args:
        model: a causal language model: `base_model(input_ids, position_ids, use_cache)` with `last_hidden_state`, and
            `get_output_embeddings()`.
        temperature: T that the rollouts are sampled at.
        dtype: of the arithmetic; weights stay as they are. bfloat16 halves memory and costs about 1e-2 nats.
        chunk: see `score_hidden`.
    """

    def __init__(
        self,
        model: nn.Module,
        temperature: float = 1.0,
        dtype: torch.dtype = torch.float32,
        chunk: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature
        self.dtype = dtype
        self.chunk = chunk

    def forward(self, packed: PackedTokens) -> TokenScores:
        """Return the scores of `packed.targets`."""
        model: Any = self.model
        head = model.get_output_embeddings()
        with torch.autocast(packed.targets.device.type, dtype=torch.bfloat16, enabled=self._mixed):
            body = model.base_model(input_ids=packed.input_ids, position_ids=packed.position_ids, use_cache=False)
        hidden = body.last_hidden_state.flatten(0, 1)[packed.predict_at]
        return score_hidden(
            hidden.bfloat16() if self._mixed else hidden,
            head.weight,
            packed.targets,
            bias=getattr(head, "bias", None),
            temperature=self.temperature,
            chunk=self.chunk,
        )

    @torch.no_grad()
    def logits(self, ids: Sequence[int]) -> Tensor:
        """Return the model's logits `[n, V]` after each of `ids`, float32 and undivided: what a canary is made of."""
        model: Any = self.model
        head = model.get_output_embeddings()
        row = torch.as_tensor([list(ids)], dtype=torch.long, device=head.weight.device)
        body = model.base_model(
            input_ids=row, position_ids=torch.arange(row.shape[1])[None].to(row.device), use_cache=False
        )
        return _logits(body.last_hidden_state[0], head.weight, getattr(head, "bias", None), 1.0)

    def pack(self, rollouts: Sequence[Rollout]) -> PackedTokens:
        """Lay rollouts out as the attention of this model wants them.

        Raises:
            DataError: see `packing.pack`.
        """
        return pack(rollouts, self._dense_mask)

    @property
    def _dense_mask(self) -> bool:
        config = getattr(self.model, "config", None)
        return getattr(config, "_attn_implementation", None) in _DENSE_MASK

    @property
    def _mixed(self) -> bool:
        return self.dtype is torch.bfloat16

    @torch.no_grad()
    def check(self, tolerance: float = 1e-3) -> None:
        """Prove on a canary that this way of scoring is the model's own.

        Three short sequences are scored packed; the same log-probs are taken from the model's own logits, one sequence
        at a time. The two differ where a model scales or caps its logits, or does not keep packed sequences apart.

        Raises:
            EngineError: they differ by more than `tolerance` nats.
        """
        model: Any = self.model
        weight = model.get_output_embeddings().weight
        ids = (np.arange(12) * 7 + 3) % weight.shape[0]
        rows = (ids[:5], ids[5:9], ids[9:])
        inputs, positions, starts = assemble(rows, self._dense_mask)
        places = np.concatenate([start + np.arange(len(row) - 1) for start, row in zip(starts, rows, strict=True)])
        targets = torch.from_numpy(np.concatenate([row[1:] for row in rows]))
        packed = self(PackedTokens(inputs, positions, torch.from_numpy(places), targets).to(weight.device)).logp
        alone = []
        for row in (torch.from_numpy(row).to(weight.device) for row in rows):
            with torch.autocast(weight.device.type, dtype=torch.bfloat16, enabled=self._mixed):
                logits = model(input_ids=row[None], use_cache=False).logits[0, :-1].float() / self.temperature
            alone.append(logits.log_softmax(-1).gather(-1, row[1:, None])[:, 0])
        worst = float((packed - torch.cat(alone)).abs().max())
        bound = 100 * tolerance if self._mixed else tolerance
        if not worst <= bound:
            raise EngineError(
                f"{type(model).__name__} scores packed tokens differently from its own logits (by {worst:.3g} nats, "
                f"bound {bound:g}): it scales its logits or does not keep packed sequences apart; use another model "
                f"or another attention implementation."
            )
