"""The four numbers that the engine returns with every sampled token, and the form in which they travel.

An engine that returns log-probs returns, for each sampled token, a row of (token id, log-prob) pairs. The hook in the
worker fills that row with what training needs instead of with the most likely tokens:

    column   token id   value
    0        sampled    log μ(y) of the sampled token
    1        −1         H = −Σ μ log μ over the full vocabulary, nats
    2        −2         Σ μ²
    3        −3         version of the weights in the worker at that moment

μ is the distribution that was sampled from: after temperature, top-k and top-p, with removed tokens at −∞. The
negative ids prove on the other side that the hook, and not the stock code, filled the row. Ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import EngineError
from entr_lab.real.records import Completion

__all__ = [
    "COLUMNS",
    "MAX_VERSION",
    "Span",
    "behaviour_columns",
    "is_behaviour_row",
    "read_completion",
    "span_versions",
]

COLUMNS: Final = 3
"""Log-probs to ask the engine for, beside the sampled token's own; asking for this many switches the hook on."""

MAX_VERSION: Final = 1 << 24
"""Versions travel as float32, exact below this number."""

_SENTINELS: Final = (-1, -2, -3)


class Span(Protocol):
    """The engine's own label of a run of tokens: `[start, end)` were sampled by weights called `version`."""

    version: str
    start: int
    end: int


def behaviour_columns(logprobs: Tensor, token_ids: Tensor, version: int) -> tuple[Tensor, Tensor]:
    """Return ids and values of the row that travels with each sampled token.

    Args:
        logprobs: `[R, V]` float32 log-probs of the distribution that was sampled from; −∞ where a token was removed.
        token_ids: `[R]` int64 sampled tokens.
        version: of the weights in this worker.

    Returns:
        ids `[R, 4]` int32 and values `[R, 4]` float32. NaN log-probs give NaN values: nothing is replaced here.
    """
    token = token_ids.unsqueeze(-1)
    probs = logprobs.exp()
    # entr(0) = 0, so a removed token adds nothing where 0·(−∞) would add NaN.
    entropy = torch.special.entr(probs).sum(-1, keepdim=True)
    collision = probs.square().sum(-1, keepdim=True)
    values = torch.cat(
        [logprobs.gather(-1, token), entropy, collision, torch.full_like(entropy, float(version))], dim=1
    )
    ids = torch.cat([token, *(torch.full_like(token, sentinel) for sentinel in _SENTINELS)], dim=1)
    return ids.to(torch.int32), values


def is_behaviour_row(ids: Sequence[int]) -> bool:
    """Whether these are the token ids of a row that the hook filled."""
    return len(ids) == COLUMNS + 1 and tuple(ids[1:]) == _SENTINELS


def span_versions(spans: Iterable[Span] | None, length: int) -> NDArray[np.int64]:
    """Return the version of each of `length` tokens as the engine's own spans tell it.

    Raises:
        EngineError: there are no spans, they leave a gap, or a label is not a number.
    """
    versions = np.full(length, -1, dtype=np.int64)
    for span in spans or ():
        try:
            versions[span.start : span.end] = int(span.version)
        except ValueError:
            raise EngineError(
                f"the engine labels its weights {span.version!r}, not with a version number; "
                f"push weights into a generator before it generates."
            ) from None
    if (versions < 0).any():
        raise EngineError(
            f"the engine's version spans cover {int((versions >= 0).sum())} of {length} tokens; "
            f"it must label every token: use a vLLM that reports weight_versions (0.32 or later)."
        )
    return versions


def read_completion(output: Any) -> Completion:
    """Return the record of one finished engine output.

    Two independent mechanisms say which weights produced a token: the scheduler's spans, and the tag that the worker
    writes beside the log-prob. They must agree token by token.

    Args:
        output: a `CompletionOutput` with flat log-probs: `token_ids`, `logprobs.token_ids`, `logprobs.logprobs`,
            `weight_versions`, `finish_reason`.

    Raises:
        EngineError: the hook is not in place, or the two versions of a token differ.
    """
    token_ids = np.asarray(output.token_ids, dtype=np.int32)
    length = len(token_ids)
    if length == 0:
        empty = np.zeros(0, dtype=np.float32)
        return Completion(token_ids, empty, empty, empty, np.zeros(0, dtype=np.int64), str(output.finish_reason))
    ids = np.asarray(output.logprobs.token_ids, dtype=np.int64)
    if ids.size != length * (COLUMNS + 1) or (ids.reshape(length, -1)[:, 1:] != _SENTINELS).any():
        raise EngineError(
            f"the engine returned {ids.size} log-prob ids for {length} tokens without the hook's marks {_SENTINELS}; "
            f"the entropy hook is not active in its worker: check worker_extension and the model runner's version."
        )
    values = np.asarray(output.logprobs.logprobs, dtype=np.float32).reshape(length, COLUMNS + 1)
    if (ids.reshape(length, -1)[:, 0] != token_ids).any():
        raise EngineError("the engine's log-probs belong to other tokens than the sampled ones; report this.")
    tags = values[:, 3].astype(np.int64)
    spans = span_versions(output.weight_versions, length)
    if (tags != spans).any():
        place = int(np.flatnonzero(tags != spans)[0])
        raise EngineError(
            f"token {place} was produced by weights {tags[place]} in the worker but is labelled {spans[place]} by the "
            f"scheduler; update weights only while generation is paused."
        )
    logp, entropy, collision = np.ascontiguousarray(values[:, :COLUMNS].T)
    return Completion(token_ids, logp, entropy, collision, tags, str(output.finish_reason))
