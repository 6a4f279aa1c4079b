"""Processes that meet: over a file on loopback, over a port elsewhere."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch

from entr_lab.real import rendezvous
from entr_lab.real.rendezvous import Rendezvous, meet, open_rendezvous


def _member(rank: int, address: str, out: str) -> None:
    torch.set_num_threads(1)
    world = meet(Rendezvous(address), rank, 2)
    try:
        total = world.reduce(torch.tensor([float(rank + 1)]))
        Path(out, str(rank)).write_text(f"{world.rank} {world.size} {float(total)}")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_meet_at_a_file(tmp_path: Path) -> None:
    """On loopback no port is opened for the store."""
    place = open_rendezvous(2, "127.0.0.1")
    assert place.address.startswith("/dev/shm/")
    try:
        torch.multiprocessing.spawn(_member, args=(place.address, str(tmp_path)), nprocs=2)
    finally:
        place.close()
    assert not Path(place.address).parent.exists()
    assert (tmp_path / "0").read_text() == "0 2 3.0"
    assert (tmp_path / "1").read_text() == "1 2 3.0"


def test_a_store_stays_with_the_process_that_opened_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What travels is the address alone."""
    monkeypatch.setattr(rendezvous, "TCPStore", lambda host, *_, **__: type("S", (), {"port": 4321, "host": host})())
    place = open_rendezvous(2, "10.1.2.3")
    assert (place.address, place.store.port) == ("10.1.2.3:4321", 4321)
    travelled = pickle.loads(pickle.dumps(place))
    assert (travelled.address, travelled.store) == ("10.1.2.3:4321", None)
    assert travelled == place


def test_where_a_store_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The opener uses its own end, the others connect to host and port, a file is used by all."""
    met: list[object] = []
    monkeypatch.setattr(rendezvous, "TCPStore", lambda host, port, size, master, _: ("tcp", host, port, size, master))
    monkeypatch.setattr(rendezvous, "FileStore", lambda path, size: ("file", path, size))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda _, store, **__: met.append(store))
    monkeypatch.setitem(os.environ, "GLOO_SOCKET_IFNAME", "")
    meet(Rendezvous("10.1.2.3:4321", "own end"), 0, 2)
    meet(Rendezvous("10.1.2.3:4321"), 1, 2)
    meet(Rendezvous("/dev/shm/x"), 1, 2)
    assert met == ["own end", ("tcp", "10.1.2.3", 4321, 2, False), ("file", "/dev/shm/x", 2)]
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
