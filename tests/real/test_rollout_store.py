"""Rollouts and random states survive storage bit for bit."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from entr_lab.errors import DataError
from entr_lab.real.records import Rollout
from entr_lab.real.rollout_store import random_state, restore_random_state, restore_rollouts, store_rollouts

from .fakes import toy_rollouts


def test_rollouts_round_trip():
    """Every column, dtype, NaN, sample and info."""
    rollouts = [r for group in toy_rollouts(spread=2, version=3) for r in group]
    rollouts[0] = replace(rollouts[0], info={"truncated": True, "note": "ä"})
    back = restore_rollouts(store_rollouts(rollouts))

    assert len(back) == len(rollouts)
    for mine, theirs in zip(back, rollouts, strict=True):
        for field in fields(Rollout):
            a, b = getattr(mine, field.name), getattr(theirs, field.name)
            if isinstance(b, np.ndarray):
                assert a.dtype == b.dtype, field.name
                np.testing.assert_array_equal(a, b)
            else:
                assert a == b


def test_no_rollout():
    """An empty buffer is stored and comes back empty."""
    assert restore_rollouts(store_rollouts([])) == []
    assert restore_rollouts({}) == []


def test_objects_are_refused():
    """An environment's info has to be plain data."""
    rollout = replace(toy_rollouts()[0][0], info={"x": object()})
    with pytest.raises(DataError, match="plain data"):
        store_rollouts([rollout])


def test_random_state_goes_on_where_it_was():
    """The same numbers follow."""
    state = random_state()
    first = torch.randn(5)
    restore_random_state(state)

    assert torch.equal(torch.randn(5), first)
    assert all(isinstance(value, str) for value in state.values())
