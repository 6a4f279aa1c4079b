"""What is on the shelf, what leaves it, and what may not."""

from __future__ import annotations

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.real.version_shelf import VersionShelf
from entr_lab.real.weight_transfer import WeightManifest


def shelf_of(*versions: int) -> VersionShelf:
    shelf = VersionShelf()
    for version in versions:
        shelf.put(WeightManifest(version))
    return shelf


def test_what_is_loading_stays_until_it_is_loaded() -> None:
    shelf = shelf_of(0, 1, 2, 3)
    with shelf.loading(1) as manifest:
        assert manifest.version == 1
        assert [gone.version for gone in shelf.let_go(3)] == [0, 2]
    assert [gone.version for gone in shelf.let_go(3)] == [1]
    assert shelf.versions == [3]


def test_the_newest_always_stays() -> None:
    shelf = shelf_of(4, 5)
    assert [gone.version for gone in shelf.let_go(99)] == [4]
    assert shelf.newest.version == 5


def test_a_failed_load_lets_go() -> None:
    shelf = shelf_of(0, 1)
    with pytest.raises(RuntimeError), shelf.loading(0):
        raise RuntimeError
    assert [gone.version for gone in shelf.let_go(1)] == [0]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ProtocolError, match="weights 0 are not kept"), shelf_of(4).loading(0):
        pass
