"""A published file that is carried to another machine, without one."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from entr_lab.errors import EngineError
from entr_lab.real import parcels
from entr_lab.real.parcels import Parcel, send, unpacked
from entr_lab.real.ports import StepResult
from entr_lab.real.weight_transfer import SharedMemorySender, WeightManifest, read_weights


class RayError(Exception):
    """Ray's."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An object store of futures, and a machine whose name can be changed."""

    class Reference:
        def __init__(self, value: Any) -> None:
            self.value = value

        def __await__(self) -> Any:
            yield from asyncio.sleep(0).__await__()
            if isinstance(self.value, Exception):
                raise self.value
            return self.value

    here = SimpleNamespace(node="a")
    context = SimpleNamespace(get_node_id=lambda: here.node)
    ray = SimpleNamespace(put=Reference, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.exceptions", SimpleNamespace(RayError=RayError))
    here.reference = Reference
    return here


def test_the_file_arrives_and_is_tidied_up(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors")
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(parcels, "SHARED_MEMORY", tmp_path / "here")
    sender = SharedMemorySender(None, tmp_path / "there")
    weights = {"w": torch.arange(6.0).reshape(2, 3)}
    manifest = send(sender.publish(weights, 7))
    assert manifest.parcel.node == "a"
    store.node = "b"

    async def arrive() -> str:
        async with unpacked(manifest) as local:
            assert local.path != manifest.path
            assert local.parcel is None
            assert torch.equal(read_weights(local.to_wire())["w"], weights["w"])
            return local.path

    path = asyncio.run(arrive())
    assert not Path(path).exists()
    assert list((tmp_path / "here").iterdir()) == []
    assert Path(manifest.path).exists()
    sender.close()


def test_on_the_same_machine_nothing_is_copied(store: Any) -> None:
    manifest = WeightManifest(3, path="/dev/shm/x", parcel=Parcel("a", None))

    async def path() -> str:
        async with unpacked(manifest) as local:
            return local.path

    assert asyncio.run(path()) == "/dev/shm/x"


def test_bytes_that_are_gone_are_a_sentence(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcels, "SHARED_MEMORY", tmp_path)
    lost = WeightManifest(3, path="/x/v3.safetensors", parcel=Parcel("c", store.reference(RayError("owner died"))))

    async def arrive() -> None:
        async with unpacked(lost):
            raise AssertionError

    with pytest.raises(EngineError, match="weights 3 did not reach this machine: owner died"):
        asyncio.run(arrive())
    assert list(tmp_path.iterdir()) == []


def test_a_step_carries_its_manifest_and_the_rest_passes(store: Any, tmp_path: Path) -> None:
    path = tmp_path / "v1.safetensors"
    np.arange(5, dtype=np.uint8).tofile(path)
    step = send(StepResult(None, WeightManifest(1, path=str(path), size=5)))  # type: ignore[arg-type]
    assert step.manifest.parcel.content.value.tolist() == [0, 1, 2, 3, 4]
    assert send(None) is None
    assert send([1]) == [1]
    assert send(WeightManifest(1)).parcel is None
