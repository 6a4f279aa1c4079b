"""One rank of a real job: decides its part of a batch with an all-reduce over gloo on the loopback interface."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from entr_lab.objective import decide, get_method
from entr_lab.testing import adversarial_batch


def batch_of(rank: int | None) -> object:
    """The whole batch, or the uneven part that a rank holds."""
    whole = adversarial_batch(21, 301)
    if rank is None:
        return whole
    return whole.block(0, 97) if rank == 0 else whole.block(97, 204)


def run(rank: int, folder: str) -> None:
    """Save this rank's mask and coefficients."""
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)

    def all_reduce(total: Tensor) -> Tensor:
        summed = total.clone()
        dist.all_reduce(summed)
        return summed

    decision = decide(get_method("m2po"), batch_of(rank), all_reduce)
    torch.save((decision.keep, decision.coefficient), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()
