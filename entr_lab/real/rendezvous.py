"""How the processes of a trainer find each other.

The first one opens a store: a file where all of them are on one machine's loopback, so that no port is opened to the
network; a port of its node's address in a cluster. Ours.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined]

from entr_lab.real.folders import SHARED_MEMORY, own_folder
from entr_lab.real.world import World

__all__ = ["Rendezvous", "meet", "open_rendezvous"]

_PATIENCE: Final = timedelta(minutes=10)
"""Longest wait for another process, its loading of a large model included."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """A meeting place.

    Args:
        address: `host:port` of a store, or the path of a file.
        store: the first process's own end of a store, which does not travel.
    """

    address: str
    store: Any = field(default=None, compare=False)

    def close(self) -> None:
        """Remove the file, once no process needs it any more."""
        if self.address.startswith("/"):
            shutil.rmtree(Path(self.address).parent, ignore_errors=True)

    def __reduce__(self) -> tuple[type[Rendezvous], tuple[str]]:
        return Rendezvous, (self.address,)


def open_rendezvous(size: int, host: str | None = None) -> Rendezvous:
    """Open a meeting place for `size` processes, in the first of them.

    Args:
        size: number of processes.
        host: address of this machine; by default the one that Ray knows it by.
    """
    if host is None:
        import ray

        host = ray.util.get_node_ip_address()
    if host.startswith("127."):
        return Rendezvous(str(own_folder(SHARED_MEMORY) / "trainer"))
    store = TCPStore(host, 0, size, True, _PATIENCE, wait_for_workers=False)
    return Rendezvous(f"{host}:{store.port}", store)


def meet(place: Rendezvous, rank: int, size: int) -> World:
    """Join the other processes; returns once all of them are there.

    Args:
        place: the same for all.
        rank: of this process.
        size: number of processes.
    """
    if place.address.startswith("/"):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store: Any = FileStore(place.address, size)
    elif place.store is not None:
        store = place.store
    else:
        host, _, port = place.address.rpartition(":")
        store = TCPStore(host, int(port), size, False, _PATIENCE)
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    return World.current()
