"""The same hook for the GPU's Model Runner V2, where no vocabulary of log-probs exists.

Model Runner V2 samples with a fused kernel and takes log-probs of single tokens from the processed logits afterwards,
by `compute_topk_scores(logits, num_logprobs, sampled, …)`. The hook replaces that function where the sampler looks it
up; asked for anything else than the hook's own number of columns it calls the stock function.

Written against vLLM 0.32. Not run on a GPU; the tensors are tested on a CPU, and the start-up self-check refuses to
train on an engine where the hook does not give what a recomputation gives.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from entr_lab.real.behaviour import COLUMNS, behaviour_columns

__all__ = ["SAMPLER_MODULE", "install", "make_scores", "scores_from_logits"]

SAMPLER_MODULE: Final = "vllm.v1.worker.gpu.sample.sampler"

_ROWS: Final = 64
"""Rows at a time: 64 × 150 000 float32 are 37 MiB, and a few of them live at once."""


def scores_from_logits(logits: Tensor, token_ids: Tensor, version: int) -> tuple[Tensor, Tensor]:
    """Return ids and values of the hook's row from processed logits.

    Args:
        logits: `[R, V]` after temperature, top-k and top-p, any float dtype.
        token_ids: `[R]` or `[R, 1]` sampled tokens.
        version: of the weights in this worker.

    Returns:
        ids `[R, 4]` int32 and values `[R, 4]` float32, as `behaviour_columns`.
    """
    token_ids = token_ids.reshape(-1).long()
    parts = [
        behaviour_columns(
            logits[start : start + _ROWS].float().log_softmax(-1), token_ids[start : start + _ROWS], version
        )
        for start in range(0, len(token_ids), _ROWS)
    ]
    ids, values = zip(*parts, strict=True)
    return torch.cat(ids), torch.cat(values)


def make_scores(
    stock: Callable[..., Any], result: Callable[..., Any], version: Callable[[], int]
) -> Callable[..., Any]:
    """Return the replacement of `compute_topk_scores`.

    Args:
        stock: the function that is replaced.
        result: `LogprobsTensors`.
        version: tells the version of the weights in this worker.
    """

    def scores(
        logits: Tensor,
        num_logprobs: int,
        sampled_token_ids: Tensor,
        cu_num_logits: list[int] | Tensor | None = None,
        **options: Any,
    ) -> Any:
        # Boundaries on the device exist only under speculative decoding, which this hook does not serve.
        if num_logprobs != COLUMNS or isinstance(cu_num_logits, Tensor):
            return stock(logits, num_logprobs, sampled_token_ids, cu_num_logits, **options)
        ids, values = scores_from_logits(logits, sampled_token_ids, version())
        ranks = torch.zeros(len(ids), dtype=torch.int64, device=ids.device)
        return result(ids.long(), values, ranks, cu_num_generated_tokens=cu_num_logits)

    return scores


def install(version: Callable[[], int]) -> None:
    """Put the hook into the sampler of Model Runner V2. Call once, in the worker, before the engine is built."""
    from vllm.v1.outputs import LogprobsTensors

    sampler = importlib.import_module(SAMPLER_MODULE)
    sampler.compute_topk_scores = make_scores(sampler.compute_topk_scores, LogprobsTensors, version)  # type: ignore[attr-defined]
