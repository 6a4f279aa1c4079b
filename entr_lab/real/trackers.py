"""Where metrics go besides the file: TensorBoard, and a tracker with W&B's interface. Ours."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from entr_lab.errors import ConfigError
from entr_lab.real.config import RunConfig

__all__ = ["Trackers"]


class Trackers:
    """Sends the numbers of each batch to what the configuration names.

    Args:
        config: its `log` section, and the whole of it as the tracker's own record.
        folder: of the run.
        first_step: later steps that an interrupted run left in TensorBoard are hidden from here on.

    Raises:
        ConfigError: a wanted tracker is not installed. TensorBoard is left out where its package is missing.
    """

    def __init__(self, config: RunConfig, folder: Path, first_step: int = 0) -> None:
        self._board: Any = None
        self._run: Any = None
        if config.log.tensorboard and importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            purge = first_step or None
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)
        if config.log.tracker != "none":
            try:
                self._run = importlib.import_module(config.log.tracker)
            except ImportError:
                raise ConfigError(
                    f"log.tracker is {config.log.tracker!r}, which is not installed; pip install {config.log.tracker}."
                ) from None
            self._run.init(project=config.log.project, name=folder.name, config=config.model_dump(mode="json"))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send one batch."""
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(name, value, step)
        if self._run is not None:
            self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Bring everything to its place."""
        if self._board is not None:
            self._board.close()
        if self._run is not None:
            self._run.finish()
