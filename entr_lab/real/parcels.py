"""Weights on their way to another machine: a published file, carried by Ray's object store.

A manifest names a file in the shared memory of the trainer's machine. Where generators run on several machines the
bytes go into the object store as well, once a version; an actor elsewhere writes them to its own shared memory, and
everything after that is as on one machine: size, CRC-32 of each tensor, canary. Ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from entr_lab.errors import EngineError
from entr_lab.real.folders import SHARED_MEMORY, own_folder, remove_orphans
from entr_lab.real.ports import StepResult
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["Parcel", "send", "this_node", "unpacked"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A published file that travels.

    Args:
        node: that the file lies on.
        content: reference to its bytes in the object store, freed with the last manifest that holds it.
    """

    node: str
    content: Any


def send(answer: Any) -> Any:
    """Attach a parcel to the manifest in a trainer's answer; anything else passes through."""
    if isinstance(answer, StepResult):
        return replace(answer, manifest=send(answer.manifest))
    if not isinstance(answer, WeightManifest) or not answer.path:
        return answer
    import ray

    content = ray.put(np.fromfile(answer.path, dtype=np.uint8))
    return replace(answer, parcel=Parcel(this_node(), content))


@asynccontextmanager
async def unpacked(manifest: WeightManifest) -> AsyncIterator[WeightManifest]:
    """Give a manifest whose file lies on this machine, and remove what was written for it.

    Raises:
        EngineError: the bytes are gone, or shared memory is full.
    """
    parcel = manifest.parcel
    if parcel is None or parcel.node == this_node():
        yield replace(manifest, parcel=None)
        return
    remove_orphans()
    folder = own_folder(SHARED_MEMORY)
    path = folder / Path(manifest.path).name
    try:
        await _write(parcel, path, manifest.version)
        yield replace(manifest, path=str(path), parcel=None)
    finally:
        path.unlink(missing_ok=True)
        folder.rmdir()


async def _write(parcel: Parcel, path: Path, version: int) -> None:
    from ray.exceptions import RayError

    try:
        (await parcel.content).tofile(path)
    except (RayError, OSError) as error:
        raise EngineError(
            f"weights {version} did not reach this machine: {error}; free space in {SHARED_MEMORY}, or check the "
            f"network between the nodes."
        ) from error


def this_node() -> str:
    """Return Ray's name of the machine that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())
