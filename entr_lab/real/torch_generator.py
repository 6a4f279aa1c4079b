"""A generator in plain torch: no engine, no cache, all running requests one token further per forward pass.

Slow for anything but a tiny model; it measures the start reward of the warm start, and stands in where no engine is
installed. It records the distribution that it samples from (after temperature, top-k, top-p), as an engine must.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entr_lab.real.records import Completion, SamplingSpec

__all__ = ["TorchGenerator", "processed_logits"]


@dataclass(eq=False, slots=True)
class _Request:
    ids: list[int]
    sampling: SamplingSpec
    done: asyncio.Future[Completion]
    rows: list[tuple[float, float, float, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class TorchGenerator:
    """Samples from a Hugging Face causal language model, or from what looks like one.

    Args:
        model: `model(input_ids=…, use_cache=False).logits`.
        seed: of the sampling.
        version: of the model's weights.
    """

    def __init__(self, model: nn.Module, *, seed: int = 0, version: int = 0) -> None:
        self.model = model.eval()
        self.version = version
        self._random = torch.Generator().manual_seed(seed)
        self._active: list[_Request] = []
        self._runner: asyncio.Task[None] | None = None

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        """Take new weights; running requests go on under them, with their past recomputed."""
        self.model.load_state_dict(weights)
        self.version = version

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """Return `n` completions of one prompt."""
        loop = asyncio.get_running_loop()
        requests = [_Request(list(prompt_ids), sampling, loop.create_future()) for _ in range(n)]
        self._active += requests
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        return list(await asyncio.gather(*(request.done for request in requests)))

    async def _run(self) -> None:
        while self._active:
            await asyncio.sleep(0)  # others may add requests, or load weights
            try:
                self._advance()
            except Exception as error:
                for request in self._active:
                    if not request.done.done():
                        request.done.set_exception(error)
                self._active.clear()
                raise

    @torch.no_grad()
    def _advance(self) -> None:
        active = self._active
        lengths = [len(request.ids) for request in active]
        padded = torch.zeros(len(active), max(lengths), dtype=torch.int64)
        for row, request in enumerate(active):
            padded[row, : lengths[row]] = torch.tensor(request.ids)
        # Attention is causal, so the padding behind a sequence does not reach its last token.
        model: Any = self.model
        device = next(model.parameters()).device
        logits = model(input_ids=padded.to(device), use_cache=False).logits
        last = logits[torch.arange(len(active)), torch.tensor(lengths) - 1].float().cpu()
        logp = torch.stack([processed_logits(row, request.sampling) for row, request in zip(last, active, strict=True)])
        logp = logp.log_softmax(-1)
        probs = logp.exp()
        token = torch.multinomial(probs, 1, generator=self._random)
        entropy = torch.special.entr(probs).sum(-1)
        columns = torch.stack([logp.gather(-1, token)[:, 0], entropy, probs.square().sum(-1)], dim=-1).tolist()
        for request, chosen, row in zip(active, token[:, 0].tolist(), columns, strict=True):
            request.ids.append(chosen)
            request.tokens.append(chosen)
            request.rows.append((*row, self.version))
        self._active = [request for request in active if not self._finish(request)]

    @staticmethod
    def _finish(request: _Request) -> bool:
        stopped = request.tokens[-1] in request.sampling.stop_token_ids
        if not stopped and len(request.tokens) < request.sampling.max_tokens:
            return False
        logp_mu, entropy_mu, collision_mu, version = zip(*request.rows, strict=True)
        completion = Completion(
            np.array(request.tokens, dtype=np.int32),
            np.array(logp_mu, dtype=np.float32),
            np.array(entropy_mu, dtype=np.float32),
            np.array(collision_mu, dtype=np.float32),
            np.array(version, dtype=np.int64),
            "stop" if stopped else "length",
        )
        if not request.done.done():
            request.done.set_result(completion)
        return True


def processed_logits(logits: Tensor, sampling: SamplingSpec) -> Tensor:
    """Return `[V]` logits of the distribution that is sampled from; −∞ where top-k or top-p removed a token."""
    logits = logits / sampling.temperature
    if sampling.top_k and sampling.top_k < len(logits):
        least = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if sampling.top_p < 1.0:
        ordered, places = logits.softmax(-1).sort(descending=True)
        # A token stays while the mass before it is below top_p; the most likely one always stays.
        gone = places[ordered.cumsum(-1) - ordered >= sampling.top_p]
        logits = logits.index_fill(0, gone, float("-inf"))
    return logits
