"""Distinct rows against numpy's own unique, and that a reused finder forgets earlier batches."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.sim.distinct import DistinctRows
from entr_lab.sim.policy import PolicyShape

SHAPE = PolicyShape(features=(3, 4, 2), vocabulary=5, embedding=2, hidden=6)
FINDER = DistinctRows(SHAPE)


def random_rows(seed: int, count: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    columns = [start + rng.integers(0, size, count) for start, size in zip(SHAPE.offsets, SHAPE.features, strict=True)]
    return torch.from_numpy(np.stack(columns, axis=-1))


@given(st.integers(0, 9999), st.integers(1, 60))
def test_is_numpys_unique_in_order_of_first_occurrence(seed: int, count: int) -> None:
    rows = random_rows(seed, count)

    found = FINDER.of(rows)  # the same finder for every example: nothing may leak from one to the next

    assert torch.equal(found.rows[found.place], rows)
    _, first = np.unique(rows.numpy(), axis=0, return_index=True)
    assert torch.equal(found.rows, rows[torch.from_numpy(np.sort(first))])
    assert found.seen.tolist() == [len(np.unique(rows[: n + 1].numpy(), axis=0)) for n in range(count)]
