"""Published weights that a generator may still have to load, and when they are let go. Ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from entr_lab.errors import ProtocolError
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["VersionShelf"]


class VersionShelf:
    """Manifests by version; those being loaded are never let go."""

    def __init__(self) -> None:
        self._manifests: dict[int, WeightManifest] = {}
        self._loading: list[int] = []

    @property
    def newest(self) -> WeightManifest:
        """The manifest of the highest version."""
        return self._manifests[max(self._manifests)]

    @property
    def versions(self) -> list[int]:
        """Versions on the shelf, ascending."""
        return sorted(self._manifests)

    def put(self, manifest: WeightManifest) -> None:
        """Add a published version."""
        self._manifests[manifest.version] = manifest

    @contextmanager
    def loading(self, version: int) -> Iterator[WeightManifest]:
        """Hold a version while a generator loads it.

        Raises:
            ProtocolError: it is not on the shelf.
        """
        if version not in self._manifests:
            raise ProtocolError(f"weights {version} are not kept any more; kept are {self.versions}.")
        self._loading.append(version)
        try:
            yield self._manifests[version]
        finally:
            self._loading.remove(version)

    def let_go(self, oldest_needed: int) -> list[WeightManifest]:
        """Take out and return what is older than `oldest_needed` and not being loaded; the newest always stays."""
        newest = max(self._manifests, default=0)
        gone = [v for v in self._manifests if v < min(oldest_needed, newest) and v not in self._loading]
        return [self._manifests.pop(version) for version in gone]
