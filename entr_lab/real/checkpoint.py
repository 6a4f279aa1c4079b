"""Checkpoints: a folder of safetensors and JSON, there whole or not at all, and proved when it is read.

    RUN/checkpoints/step-00000120/
        weights.safetensors  optimizer.safetensors  rollouts.safetensors  state.json  manifest.json

`manifest.json` holds size and SHA-256 of every other file. A folder is written under another name, flushed, and
renamed; so a full disk or a kill leaves the previous checkpoint as it was. No pickle anywhere. Ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from entr_lab.errors import DataError, EngineError

__all__ = ["Checkpoint", "export_model", "latest_checkpoint", "load_checkpoint", "save_checkpoint"]

FORMAT: Final = 1
_NAME: Final = re.compile(r"step-(\d{8})")
_TENSORS: Final = ("weights", "optimizer", "rollouts")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that a resume needs.

    Args:
        step: batches trained so far.
        weights: of the model, Hugging Face names.
        optimizer: flat tensors, from `Trainer.state`.
        rollouts: flat tensors of the rollouts that were generated and not yet trained on (`store_rollouts`).
        state: plain JSON data: trainer counters, random states, data cursor, pipeline snapshot, length of the event
            log, and what else the run wants back.
    """

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    rollouts: dict[str, Tensor] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


def save_checkpoint(root: Path, checkpoint: Checkpoint, keep: int = 2) -> Path:
    """Write a checkpoint and delete all but the newest `keep`.

    Returns:
        The folder.

    Raises:
        EngineError: it could not be written; earlier checkpoints are untouched.
    """
    folder = root / f"step-{checkpoint.step:08d}"
    partial = root / f".partial-{checkpoint.step:08d}-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _discard_partial(root)
        partial.mkdir()
        _write(partial, checkpoint)
        if folder.exists():  # the same step again, after a resume
            shutil.rmtree(folder)
        os.replace(partial, folder)
        _flush_folder(root)
    except (OSError, ValueError, TypeError) as error:
        raise EngineError(
            f"checkpoint {folder.name} was not written ({_reason(error)}); earlier ones in {str(root)!r} are "
            f"untouched, so free space and resume from the last one."
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for old in _folders(root)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint and prove every file.

    Raises:
        DataError: a file is missing, of another size, or its bytes are not those that were written.
    """
    from safetensors.torch import load_file

    _prove(folder)
    tensors = {name: load_file(folder / f"{name}.safetensors") for name in _TENSORS}
    content = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return Checkpoint(content["step"], **tensors, state=content["state"])


def latest_checkpoint(root: Path) -> Path:
    """Return the newest checkpoint folder of a run.

    Raises:
        DataError: there is none.
    """
    folders = _folders(root)
    if not folders:
        raise DataError(f"{str(root)!r} holds no checkpoint; start a new run instead.")
    return folders[-1]


def export_model(checkpoint: Checkpoint, model_folder: Path, target: Path) -> Path:
    """Write a Hugging Face folder: weights of the checkpoint, configuration and tokenizer of the model's folder.

    Args:
        checkpoint: its weights are exported.
        model_folder: local folder that the model was loaded from.
        target: new folder.

    Raises:
        DataError: the target exists, or the model's folder has no configuration.
    """
    from safetensors.torch import save_file

    if target.exists():
        raise DataError(f"{str(target)!r} exists; choose a new folder.")
    if not (model_folder / "config.json").is_file():
        raise DataError(f"{str(model_folder)!r} has no config.json, so there is no model to export for.")
    partial = target.with_name(f".partial-{target.name}-{os.getpid()}")
    try:
        shutil.copytree(model_folder, partial, ignore=shutil.ignore_patterns("*.safetensors*", "*.bin", "recipe.json"))
        save_file(checkpoint.weights, partial / "model.safetensors", metadata={"format": "pt"})
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        for name in _TENSORS:
            save_file(getattr(checkpoint, name), folder / f"{name}.safetensors")
    except SafetensorError as error:
        raise OSError(str(error)) from None
    content = {"format": FORMAT, "step": checkpoint.step, "state": checkpoint.state}
    (folder / "state.json").write_text(json.dumps(content, allow_nan=False), encoding="utf-8")
    files = {path.name: _describe(path) for path in sorted(folder.iterdir())}
    (folder / "manifest.json").write_text(json.dumps({"format": FORMAT, "files": files}, indent=1), encoding="utf-8")
    for path in folder.iterdir():
        with path.open("rb") as handle:
            os.fsync(handle.fileno())
    _flush_folder(folder)


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def _prove(folder: Path) -> None:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        version, files = manifest["format"], manifest["files"]
        if not isinstance(files, Mapping) or not {f"{name}.safetensors" for name in _TENSORS} <= files.keys():
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{str(folder)!r} has no readable manifest.json, so it is no checkpoint.") from None
    if version != FORMAT:
        raise DataError(f"{str(folder)!r} has checkpoint format {version}, this version reads {FORMAT}.")
    for name, wanted in files.items():
        path = folder / Path(name).name
        found = _describe(path) if path.is_file() else None
        if found != wanted:
            what = "is missing" if found is None else "is not what was written (size or checksum differ)"
            raise DataError(f"{str(path)!r} {what}; delete the folder to resume from the checkpoint before it.")


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))


def _discard_partial(root: Path) -> None:
    """Remove what a killed process left half-written."""
    for path in root.glob(".partial-*"):
        shutil.rmtree(path, ignore_errors=True)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
