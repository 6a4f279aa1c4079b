"""The processes of one trainer: who I am, how sums are taken over all, how a model is sharded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from entr_lab.errors import EngineError

__all__ = ["World", "full_tensor", "local_state", "shard", "swapped"]


@dataclass(frozen=True, slots=True)
class World:
    """One process of a trainer of `size` processes.

    With more than one, `torch.distributed` must have been initialised before.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> World:
        """Return the place of this process in the initialised process group, or a world of one."""
        if not torch.distributed.is_initialized():
            return cls()
        return cls(torch.distributed.get_rank(), torch.distributed.get_world_size())

    def reduce(self, total: Tensor) -> Tensor:
        """Return the elementwise sum over all processes; what rules and denominators call."""
        if self.size == 1:
            return total
        summed = total.detach().clone()
        torch.distributed.all_reduce(summed)
        return summed

    def gather(self, columns: Tensor, lengths: list[int]) -> list[Tensor]:
        """Return every process's `[C, n]` columns; `lengths` gives n of each, known beforehand."""
        if self.size == 1:
            return [columns]
        padded = columns.new_zeros(columns.shape[0], max(lengths))
        padded[:, : columns.shape[1]] = columns
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        torch.distributed.all_gather(parts, padded)
        return [part[:, :length] for part, length in zip(parts, lengths, strict=True)]


def shard(scorer: nn.Module, layers: nn.ModuleList, device: torch.device) -> None:
    """Shard parameters, gradients and optimiser state over all processes (FSDP2), layer by layer.

    Gradients come out averaged over processes. The scorer's `logits` is a forward pass too.

    Raises:
        EngineError: the installed torch cannot do it.
    """
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
    except ImportError:
        raise EngineError("sharded training needs torch >= 2.6; upgrade torch or set trainer.processes = 1.") from None
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    # By default the root keeps its gathered weights after a pass without gradient, and would use them again when its
    # shards have changed.
    fully_shard(scorer, mesh=mesh, reshard_after_forward=True)
    register_fsdp_forward_method(scorer, "logits")


def full_tensor(value: Any) -> Tensor:
    """Return a tensor whole and detached, gathered from all processes where it is sharded (a collective call)."""
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return whole.detach()


def local_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of what this process holds of every parameter and buffer; a tied tensor has both its names."""
    return {name: _local(value).detach().clone() for name, value in model.state_dict(keep_vars=True).items()}


@contextmanager
@torch.no_grad()
def swapped(model: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """Compute with other weights for a while; the model's own come back bit for bit.

    Args:
        model: sharded or not.
        state: by name, as `local_state` returns them.
    """
    kept = local_state(model)
    try:
        _write(model, state)
        yield
    finally:
        _write(model, kept)


def _write(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    own = model.state_dict()
    for name, value in state.items():
        _local(own[name]).copy_(value)


def _local(value: Any) -> Tensor:
    part: Tensor = value.to_local() if hasattr(value, "to_local") else value
    return part
