"""How weights leave the trainer and enter the engines of one machine: a safetensors file in shared memory.

The trainer publishes a state dict under a version. A `WeightManifest` says what the file must hold: its size, and of
every tensor dtype, shape and CRC-32, taken from the trainer's memory before anything was written. A worker checks all
of it before it touches a weight, so a truncated or damaged file leaves the old weights in place and names the tensor.
The file appears under its name only when it is complete, and is removed as soon as every engine has loaded it.

On GPUs the weights travel by vLLM's own engines (`native_transfer`); the manifest then holds no file. Ours.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from entr_lab.errors import EngineError, check_range
from entr_lab.real.behaviour import MAX_VERSION
from entr_lab.real.canary import CanaryReference
from entr_lab.real.folders import SHARED_MEMORY, own_folder, remove_orphans

__all__ = [
    "SharedMemorySender",
    "TensorRecord",
    "WeightManifest",
    "WeightSender",
    "checksum",
    "describe",
    "read_weights",
    "without_ties",
]


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """What one tensor of a file must be: torch dtype name, shape, CRC-32 of its bytes."""

    dtype: str
    shape: tuple[int, ...]
    crc32: int


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """One published state of the weights.

    Args:
        version: raised once per optimiser step.
        tensors: Hugging Face name → what the tensor must be; empty where the transport does not check bytes.
        path: of the file; empty where the weights travel without one.
        size: of the file in bytes.
        canary: what the trainer itself says of the canary prompts under these weights; None skips that proof.
        parcel: carries the file to other machines, see `parcels`; None where all generators share this memory.
    """

    version: int
    tensors: Mapping[str, TensorRecord] = field(default_factory=dict)
    path: str = ""
    size: int = 0
    canary: CanaryReference | None = None
    parcel: Any = None

    def __post_init__(self) -> None:
        check_range("weight version", self.version, low=0, high=MAX_VERSION, high_open=True)

    def to_wire(self) -> dict[str, Any]:
        """Return what the worker needs, as plain data."""
        tensors = {name: [record.dtype, list(record.shape), record.crc32] for name, record in self.tensors.items()}
        return {"path": self.path, "size": self.size, "version": self.version, "tensors": tensors}


class WeightSender(Protocol):
    """The trainer's end of a transport, in the order of use; all three are blocking.

    `publish` makes a version available, `push` takes part in the transfer while the generators' `update_weights`
    runs, `release` frees what the version holds once all generators are done.
    """

    def publish(
        self, state: Mapping[str, Tensor], version: int, canary: CanaryReference | None = None
    ) -> WeightManifest: ...

    def push(self) -> None: ...

    def release(self, manifest: WeightManifest) -> None: ...

    def close(self) -> None: ...


def checksum(tensor: Tensor) -> int:
    """Return the CRC-32 of a contiguous CPU tensor's bytes."""
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data)


def describe(tensor: Tensor) -> TensorRecord:
    """Return the record of a contiguous CPU tensor."""
    return TensorRecord(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), checksum(tensor))


class SharedMemorySender:
    """Publishes weights as files in a folder of this process in shared memory.

    Args:
        dtype: cast floating weights to this on the way, e.g. to the engine's; None sends them as they are.
        root: where the folder is made.
    """

    def __init__(self, dtype: torch.dtype | None = None, root: Path = SHARED_MEMORY) -> None:
        remove_orphans(root)
        self.dtype = dtype
        self.folder = own_folder(root)

    def publish(
        self, state: Mapping[str, Tensor], version: int, canary: CanaryReference | None = None
    ) -> WeightManifest:
        """Write `state` under `version` and return its manifest.

        Raises:
            EngineError: shared memory is full, or the folder is gone.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        tensors = {name: self._wire(tensor) for name, tensor in without_ties(state).items()}
        target = self.folder / f"v{version}.safetensors"
        partial = target.with_suffix(".partial")
        try:
            save_file(tensors, str(partial))
            size = partial.stat().st_size
            os.replace(partial, target)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise EngineError(
                f"cannot write weights {version} to {target}: {error}; free space in {self.folder.parent}."
            ) from error
        records = {name: describe(tensor) for name, tensor in tensors.items()}
        return WeightManifest(version, records, str(target), size, canary)

    def _wire(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if self.dtype is not None and tensor.is_floating_point() else tensor.dtype
        return tensor.detach().to(device="cpu", dtype=dtype).contiguous()

    def push(self) -> None:
        """Do nothing: the workers read the file themselves."""

    def release(self, manifest: WeightManifest) -> None:
        """Remove the file of a version."""
        Path(manifest.path).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder and all that is left in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


def without_ties(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Drop the second name of a tensor that has two (a tied head): an engine ties them itself."""
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, tensor in state.items():
        seen.setdefault((tensor.data_ptr(), tuple(tensor.shape)), name)
    return {name: state[name] for name in seen.values()}


def read_weights(wire: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a published file after every check of the manifest; nothing is loaded yet.

    Args:
        wire: `WeightManifest.to_wire()`.

    Raises:
        EngineError: the file is missing, truncated or damaged, or a tensor is missing, surplus or not what was
            published; the message names it.
    """
    from safetensors import SafetensorError, safe_open

    path, version = Path(wire["path"]), wire["version"]
    try:
        size = path.stat().st_size
    except OSError as error:
        raise EngineError(
            f"weights {version} are not at {path} ({error.strerror}): the file was released too early, or this engine "
            f"runs on another machine than the trainer; use the nccl transport between machines."
        ) from error
    if size != wire["size"]:
        raise EngineError(
            f"weights {version} were truncated in transfer: {path} has {size} of {wire['size']} bytes; publish again."
        )
    try:
        # A copy of each tensor: a file in shared memory must not stay mapped after it is unlinked.
        with safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise EngineError(f"weights {version} at {path} are damaged: {error}; publish again.") from error
    _check_tensors(tensors, wire)
    return tensors


def _check_tensors(tensors: Mapping[str, Tensor], wire: Mapping[str, Any]) -> None:
    expected = wire["tensors"]
    for name in sorted(expected.keys() ^ tensors.keys()):
        what = "lack the tensor" if name in expected else "hold a tensor that was not published:"
        raise EngineError(f"weights {wire['version']} {what} {name}; publish again.")
    for name, (dtype, shape, crc32) in expected.items():
        found = describe(tensors[name])
        if (found.dtype, list(found.shape)) != (dtype, list(shape)):
            raise EngineError(
                f"tensor {name} of weights {wire['version']} is {found.dtype}{list(found.shape)}, "
                f"published as {dtype}{list(shape)}; publish again."
            )
        if found.crc32 != crc32:
            raise EngineError(
                f"tensor {name} of weights {wire['version']} changed in transfer: CRC-32 {found.crc32:#010x}, "
                f"published {crc32:#010x}; publish again."
            )
