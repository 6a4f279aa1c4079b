"""The bound: its one formula against a plain search, and the settings that can never work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ConfigError, RangeError
from entr_lab.pipeline.admission import Admission, Mode, OnUpdate, Policy


@given(st.integers(0, 6), st.integers(0, 4), st.integers(1, 3), st.integers(0, 9), st.integers(0, 12), st.booleans())
def test_batches_left_counts_the_batches_inside_the_bound(
    inter: int, intra: int, updates: int, version: int, target: int, optimistic: bool
) -> None:
    if inter < updates - 1 or inter + intra < updates:
        return
    admission = Admission.asynchronous(inter, intra, updates_per_batch=updates)
    last = version + intra if optimistic else version
    starts = range(target, target + 60, updates)
    usable = [start for start in starts if start + updates - 1 - last <= inter]
    assert admission.batches_left(version, target, optimistic=optimistic) == len(usable)
    assert (version >= admission.oldest_usable(target, optimistic=optimistic)) == bool(usable)


def test_modes_are_bounds() -> None:
    assert (Admission.sync().max_inter, Admission.sync().max_intra) == (0, 0)
    assert Admission.sync(updates_per_batch=4).max_inter == 3
    assert (Admission.one_step().max_inter, Admission.one_step().max_intra) == (1, 0)
    assert Admission.one_step(updates_per_batch=4).max_inter == 7
    assert Admission.exact(22, 8).mode is Mode.EXACT


@pytest.mark.parametrize("name", ["max_inter", "max_intra", "updates_per_batch"])
@pytest.mark.parametrize("value", [-1, 1.5, True, float("nan")])
def test_numbers_must_be_whole_and_in_range(name: str, value: float) -> None:
    numbers = {"max_inter": 3, "max_intra": 3, "updates_per_batch": 1, name: value}
    with pytest.raises(RangeError, match=name):
        Admission(mode=Mode.ASYNC, **numbers)


def test_impossible_combinations_say_what_would_work() -> None:
    with pytest.raises(ConfigError, match="raise max_inter to 3 or lower updates_per_batch to 2"):
        Admission.asynchronous(1, 9, updates_per_batch=4)
    with pytest.raises(ConfigError, match="use mode sync"):
        Admission.asynchronous(0, 0)
    with pytest.raises(ConfigError, match="use hold"):
        Admission.asynchronous(3, 1, policy=Policy.WAIT, on_update=OnUpdate.ABORT)
    with pytest.raises(ConfigError, match="updates_per_batch = 1"):
        Admission(mode=Mode.EXACT, max_inter=3, max_intra=1, updates_per_batch=2)
