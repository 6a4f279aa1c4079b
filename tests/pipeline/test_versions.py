"""Spans against plain per-token lists."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.versions import (
    VersionSpan,
    check_spans,
    inter_lag,
    intra_lag,
    spans_of,
    token_count,
    token_staleness,
    versions_of,
)

versions = st.lists(st.integers(0, 5), min_size=1, max_size=20).map(sorted)


@given(versions)
def test_spans_and_versions_are_inverse(per_token: list[int]) -> None:
    spans = spans_of(per_token)
    check_spans(spans)
    assert versions_of(spans) == per_token
    assert len(spans) == len(set(per_token))
    assert token_count(spans) == len(per_token)


@given(versions, st.integers(5, 9))
def test_the_lags_are_the_papers(per_token: list[int], target: int) -> None:
    spans = spans_of(per_token)
    assert intra_lag(spans) == per_token[-1] - per_token[0]
    assert inter_lag(spans, target) == target - per_token[-1]
    assert inter_lag(spans, target) + intra_lag(spans) == max(target - version for version in per_token)


@given(st.lists(versions, max_size=5), st.integers(5, 9))
def test_staleness_counts_tokens(trajectories: list[list[int]], target: int) -> None:
    expected = Counter(target - version for per_token in trajectories for version in per_token)
    assert token_staleness(map(spans_of, trajectories), target) == expected


def test_gaps_are_context_and_not_tokens() -> None:
    spans = (VersionSpan(3, 0, 4), VersionSpan(3, 10, 12))
    check_spans(spans)
    assert token_count(spans) == 6
    assert token_staleness([spans], 5) == {2: 6}


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ((), "at least one token"),
        (((1, 0, 0),), "is empty"),
        (((1, 0, 3), (2, 2, 4)), "overlaps tokens before 3"),
        (((1, 0, 3), (0, 3, 4)), "goes back from version 1"),
        (((1, -2, 3),), "overlaps"),
        (((-1, 0, 3),), "goes back"),
    ],
)
def test_impossible_spans_are_named(spans: tuple[tuple[int, int, int], ...], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        check_spans([VersionSpan(*span) for span in spans])
