"""Optimiser state as flat tensors under the model's names, so that it can be stored without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from entr_lab.errors import EngineError
from entr_lab.real.world import full_tensor

__all__ = ["flatten", "gathered", "restore"]


def gathered(state: Mapping[str, Any], keep: bool = True) -> dict[str, Tensor]:
    """Return copies of tensors, whole and on the CPU, gathered one after another (a collective call in a job).

    Args:
        state: tensors by name, sharded or not.
        keep: False in a process that only takes part; it returns nothing.
    """
    whole: dict[str, Tensor] = {}
    for name, value in state.items():
        tensor = full_tensor(value)
        if keep:
            whole[name] = tensor.to("cpu", copy=True).contiguous()
    return whole


def flatten(model: nn.Module, optimizer: torch.optim.Optimizer, keep: bool = True) -> dict[str, Tensor]:
    """Return `{parameter/field: tensor}`, see `gathered`; empty before any step."""
    state = {
        f"{name}/{field}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for field, value in optimizer.state.get(parameter, {}).items()
    }
    return gathered(state, keep)


def restore(
    model: nn.Module, optimizer: torch.optim.Optimizer, weights: dict[str, Tensor], flat: dict[str, Tensor]
) -> None:
    """Write stored weights and optimiser state back; each process of a job keeps its share.

    Raises:
        EngineError: names or shapes do not fit the model.
    """
    own = model.state_dict()
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())
        raise EngineError(f"stored weights do not fit the model: {len(odd)} names differ, first {odd[0]!r}.")
    with torch.no_grad():
        for name, target in own.items():
            target.copy_(_like(target, weights[name], name))
    parameters = dict(model.named_parameters())
    fields: dict[str, dict[str, Tensor]] = {}
    for key, value in flat.items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise EngineError(f"stored optimiser state names {name!r}, which the model lacks.")
        fields.setdefault(name, {})[field] = value
    for name, state in fields.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            field: value.clone() if value.ndim == 0 else _like(parameter, value, f"{name}/{field}").clone()
            for field, value in state.items()
        }


def _like(target: Any, value: Tensor, name: str) -> Tensor:
    """Return `value` on the device, in the dtype and the sharding of `target`."""
    if target.shape != value.shape:
        raise EngineError(f"stored {name!r} is {list(value.shape)}, the model wants {list(target.shape)}.")
    value = value.to(target.dtype)
    if not hasattr(target, "device_mesh"):
        return value.to(target.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
