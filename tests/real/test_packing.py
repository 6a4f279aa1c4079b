"""Packing without padding, and cuts that every process makes alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import DataError
from entr_lab.real.packing import assemble, micro_batches, mini_batches, pack, packed_length

from .fakes import toy_rollouts


def test_every_trainable_token_is_predicted_from_the_one_before():
    """The input at `predict_at` is the token before the target; positions start again in each sequence."""
    rollouts = [r for group in toy_rollouts() for r in group]
    packed = pack(rollouts)
    row, place = packed.input_ids[0], 0
    start = 0
    for rollout in rollouts:
        whole = np.concatenate([rollout.prompt_ids, rollout.token_ids])
        length = packed_length(rollout)
        np.testing.assert_array_equal(row[start : start + length], whole[:-1])
        np.testing.assert_array_equal(packed.position_ids[0, start : start + length], np.arange(length))
        for index in np.flatnonzero(rollout.trainable):
            at = int(packed.predict_at[place]) - start
            assert whole[at + 1] == rollout.token_ids[index] == packed.targets[place]
            assert at == len(rollout.prompt_ids) + index - 1
            place += 1
        start += length
    assert place == len(packed.targets)
    assert start == len(row)


def test_rollouts_without_prompt_or_trainable_tokens_are_refused():
    """Neither has a loss."""
    rollout = toy_rollouts()[0][0]
    for name, empty in (("prompt_ids", rollout.prompt_ids[:0]), ("trainable", np.zeros_like(rollout.trainable))):
        changed = type(rollout)(**{**{f: getattr(rollout, f) for f in rollout.__slots__}, name: empty})
        with pytest.raises(DataError, match="sample-0"):
            pack([changed])


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.booleans())
def test_rows_hold_every_sequence_once(lengths, short_rows):
    """Each sequence lies whole in one row, with positions from 0; padding is as little as a row's rest."""
    sequences = [np.full(length, 1 + index) for index, length in enumerate(lengths)]
    inputs, positions, starts = assemble(sequences, short_rows)

    n_rows, width = inputs.shape
    assert width == (max(lengths) if short_rows else sum(lengths))
    for index, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        row, place = divmod(start, width)
        assert (inputs[row, place : place + length] == 1 + index).all()
        assert positions[row, place : place + length].tolist() == list(range(length))
    padding = inputs == 0
    assert padding.sum() == n_rows * width - sum(lengths)
    # A new sequence starts at 0 wherever positions do not go on, so padding is never taken for a sequence's end.
    assert int((positions == 0).sum()) == len(lengths) + int(padding.any(dim=1).sum())
    assert n_rows <= len(lengths)


def test_short_rows_predict_the_same_tokens():
    """The layout changes places, not what is scored."""
    rollouts = [r for group in toy_rollouts() for r in group]
    one, short = pack(rollouts), pack(rollouts, short_rows=True)

    assert len(short.input_ids) > 1
    np.testing.assert_array_equal(one.targets, short.targets)
    for field in ("input_ids", "position_ids"):
        flat = [getattr(p, field).flatten()[p.predict_at] for p in (one, short)]
        np.testing.assert_array_equal(*flat)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 120), st.integers(1, 4))
def test_micro_batches_are_a_partition(lengths, budget, processes):
    """Every sequence once; equally many micro-batches a process, none empty; within the budget where possible."""
    if len(lengths) < processes:
        with pytest.raises(DataError, match="spread over"):
            micro_batches(lengths, budget, processes)
        return
    plan = micro_batches(lengths, budget, processes)

    flat = [index for bins in plan for micro in bins for index in micro]
    assert sorted(flat) == list(range(len(lengths)))
    assert len(plan) == processes
    assert len({len(bins) for bins in plan}) == 1
    assert all(micro for bins in plan for micro in bins)
    loads = [sum(lengths[i] for i in micro) for bins in plan for micro in bins]
    could_cut_more = len(plan[0]) < len(lengths) // processes
    assert max(loads) <= max(budget, max(lengths)) or not could_cut_more


def test_micro_batches_are_not_smaller_than_they_must_be():
    """What fits in one forward pass is one."""
    assert micro_batches([5, 5, 5], 15) == [[[0, 1, 2]]]
    assert len(micro_batches([5, 5, 5], 14)[0]) == 2


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.integers(1, 6))
def test_mini_batches_keep_groups_whole(sizes, count):
    """Neighbouring whole groups, all of them, none empty."""
    if len(sizes) < count:
        with pytest.raises(DataError, match="mini-batches"):
            mini_batches(sizes, count)
        return
    parts = mini_batches(sizes, count)
    stops = set(np.cumsum(sizes).tolist())

    assert [index for part in parts for index in part] == list(range(sum(sizes)))
    assert len(parts) == count
    assert all(part and part[-1] + 1 in stops for part in parts)
