"""Streams are functions of (seed, purpose, index) alone, and differ whenever one of them does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from entr_lab.errors import RangeError
from entr_lab.sim.streams import Purpose, stream


def test_same_key_same_numbers_whatever_was_drawn_before() -> None:
    first = stream(7, Purpose.SAMPLING, 3)
    first.random(1000)
    stream(7, Purpose.PROMPTS, 3).random(10)
    again = stream(7, Purpose.SAMPLING, 3).random(1000)
    np.testing.assert_array_equal(stream(7, Purpose.SAMPLING, 3).random(1000), again)


def test_every_part_of_the_key_matters() -> None:
    keys = itertools.product((0, 1, 2**63), (Purpose.PROMPTS, Purpose.SAMPLING), (0, 1, 2, 2**40))
    draws = {tuple(stream(*key).integers(0, 2**63, 4)) for key in keys}
    assert len(draws) == 3 * 2 * 4


def test_neighbouring_indices_do_not_overlap() -> None:
    """A counter that moved into the next index's range would repeat its numbers, shifted."""
    here = stream(0, Purpose.SAMPLING, 5).integers(0, 2**63, 20_000)
    there = stream(0, Purpose.SAMPLING, 6).integers(0, 2**63, 20_000)
    assert not np.intersect1d(here, there).size


def test_first_numbers_are_part_of_every_recorded_result() -> None:
    """Golden: numpy's Philox, key (11, 4), counter word 3 = 2; a change here changes every published table."""
    expected = np.random.Philox(key=np.array([11, 4], np.uint64), counter=np.array([0, 0, 0, 2], np.uint64))
    np.testing.assert_array_equal(stream(11, Purpose.SAMPLING, 2).bit_generator.random_raw(8), expected.random_raw(8))
    assert [purpose.value for purpose in Purpose] == list(range(len(Purpose)))


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (0, -1)])
def test_negative_keys_are_refused(seed: int, index: int) -> None:
    with pytest.raises(RangeError, match="must lie in"):
        stream(seed, Purpose.TASK, index)
