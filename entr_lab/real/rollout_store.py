"""Rollouts as flat tensors and plain data, and random states as text: what a checkpoint keeps besides the weights."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.real.records import Rollout

__all__ = ["random_state", "restore_random_state", "restore_rollouts", "store_rollouts"]

_COLUMNS: Final = ("token_ids", "trainable", "logp_mu", "entropy_mu", "collision_mu", "weight_version", "turn")


def store_rollouts(rollouts: Sequence[Rollout]) -> dict[str, Tensor]:
    """Return columns one after another, lengths, rewards, and sample and info as JSON bytes.

    Raises:
        DataError: a sample or an info holds something that JSON cannot.
    """
    try:
        plain = json.dumps([[rollout.sample, rollout.info] for rollout in rollouts], ensure_ascii=False)
    except TypeError as error:
        raise DataError(f"a rollout's sample or info is not plain data: {error}; return numbers and text.") from None
    tensors = {
        "lengths": torch.tensor([[len(r.prompt_ids), len(r.token_ids)] for r in rollouts]).reshape(-1, 2),
        "reward": torch.tensor([r.reward for r in rollouts], dtype=torch.float64),
        "plain": torch.frombuffer(bytearray(plain.encode()), dtype=torch.uint8).clone(),
        "prompt_ids": _joined([r.prompt_ids for r in rollouts], np.dtype(np.int32)),
    }
    for name, like in zip(_COLUMNS, _dtypes(), strict=True):
        tensors[name] = _joined([getattr(r, name) for r in rollouts], like)
    return tensors


def restore_rollouts(tensors: dict[str, Tensor]) -> list[Rollout]:
    """Return what `store_rollouts` was given; an empty dictionary is no rollout."""
    if not tensors:
        return []
    prompts, tokens = tensors["lengths"].unbind(1)
    plain = json.loads(bytes(tensors["plain"].numpy()).decode())
    pieces: dict[str, Any] = {"prompt_ids": torch.split(tensors["prompt_ids"], prompts.tolist())}
    pieces |= {name: torch.split(tensors[name], tokens.tolist()) for name in _COLUMNS}
    return [
        Rollout(
            **{name: parts[index].numpy().copy() for name, parts in pieces.items()},
            reward=float(tensors["reward"][index]),
            sample=plain[index][0],
            info=plain[index][1],
        )
        for index in range(len(plain))
    ]


def random_state() -> dict[str, str]:
    """Return the states of torch's generators, as text."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def restore_random_state(states: dict[str, str]) -> None:
    """Set the generators back; those of devices that are not there are left out."""
    for name, text in states.items():
        state = torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
        if name == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available() and int(name.partition(":")[2]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, name)


def _dtypes() -> list[np.dtype[Any]]:
    return [np.dtype(d) for d in (np.int32, np.bool_, np.float32, np.float32, np.float32, np.int64, np.int32)]


def _joined(parts: Sequence[Any], dtype: np.dtype[Any]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype), *parts]).astype(dtype))
