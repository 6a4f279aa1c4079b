"""Which weight versions of an engine are proved, being proved, or refused. Pure asyncio, no engine. Ours."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import EngineError

__all__ = ["VersionTrust"]


class VersionTrust:
    """Holds completions back until every version in them has its proof.

    A version that was never opened is trusted: it was proved before, or no proof was asked for.
    """

    def __init__(self) -> None:
        self._open: dict[int, asyncio.Event] = {}
        self._refused: dict[int, str] = {}

    def open(self, version: int) -> None:
        """Begin the proof of a version; tokens of it are held back from now on."""
        self._refused.pop(version, None)
        self._open[version] = asyncio.Event()

    def accept(self, version: int) -> None:
        """End the proof: tokens of the version may go."""
        self._open.pop(version).set()

    def refuse(self, version: int, reason: str) -> None:
        """End the proof: completions with a token of the version fail."""
        self._refused[version] = reason
        self._open.pop(version).set()

    async def wait(self, versions: NDArray[np.int64]) -> None:
        """Return once all of `versions` are proved.

        Args:
            versions: `[n]` version of each token of a completion.

        Raises:
            EngineError: the proof of one failed.
        """
        for version in np.unique(versions).tolist():
            if event := self._open.get(version):
                await event.wait()
            if reason := self._refused.get(version):
                raise EngineError(f"tokens of weights {version} cannot be trusted: {reason}")
