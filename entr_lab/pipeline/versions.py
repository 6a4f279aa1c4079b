"""Weight versions of a trajectory's tokens, as spans, and the lags of the paper.

A *weight version* is an integer raised once per optimiser step. A trajectory that lives through weight updates
carries tokens of several versions; a `VersionSpan` says that tokens `start <= t < stop` came from one of them.
With `target` the version that the update starts from (paper, section 3):

    intra_lag = v_last - v_first        inside the trajectory
    inter_lag = target - v_last         between its end and its use
    staleness of a token = target - its version, between inter_lag and inter_lag + intra_lag

Everything here costs one step per span, never per token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from entr_lab.errors import ProtocolError

__all__ = [
    "VersionSpan",
    "check_spans",
    "inter_lag",
    "intra_lag",
    "spans_of",
    "token_count",
    "token_staleness",
    "versions_of",
]


class VersionSpan(NamedTuple):
    """Tokens `start <= t < stop` of a trajectory, sampled under weight `version`.

    Positions count the trajectory's own generated tokens or, where tool answers lie between turns, all response
    tokens: gaps between spans are allowed, overlaps are not.
    """

    version: int
    start: int
    stop: int


def check_spans(spans: Sequence[VersionSpan]) -> None:
    """Check that spans are non-empty, in order, free of overlap, and never go back in version.

    Raises:
        ProtocolError: they are not; the message names the span.
    """
    if not spans:
        raise ProtocolError("a finished trajectory has at least one token; report an empty one with fail().")
    end = version = 0
    for span in spans:
        if span[1] < end or span[2] <= span[1]:
            raise ProtocolError(f"span {tuple(span)} is empty or overlaps tokens before {end}; send ordered spans.")
        if span[0] < version:
            raise ProtocolError(f"span {tuple(span)} goes back from version {version}; weights never go back.")
        version, end = span[0], span[2]


def intra_lag(spans: Sequence[VersionSpan]) -> int:
    """Return v_last - v_first, the paper's intra-trajectory lag, in versions."""
    return spans[-1][0] - spans[0][0]


def inter_lag(spans: Sequence[VersionSpan], target_version: int) -> int:
    """Return target - v_last, the paper's inter-trajectory lag, in versions."""
    return target_version - spans[-1][0]


def token_count(spans: Sequence[VersionSpan]) -> int:
    """Return the number of tokens that the spans cover."""
    return sum(span[2] - span[1] for span in spans)


def token_staleness(trajectories: Iterable[Sequence[VersionSpan]], target_version: int) -> dict[int, int]:
    """Return how many tokens have each staleness, `{target - version: tokens}`, sorted by staleness."""
    tokens: dict[int, int] = {}
    for spans in trajectories:
        for version, start, stop in spans:
            lag = target_version - version
            tokens[lag] = tokens.get(lag, 0) + stop - start
    return dict(sorted(tokens.items()))


def versions_of(spans: Sequence[VersionSpan]) -> list[int]:
    """Expand spans to one version per token, in order, gaps left out; what `TokenBatch.weight_version` holds."""
    versions: list[int] = []
    for version, start, stop in spans:
        versions += [version] * (stop - start)
    return versions


def spans_of(versions: Sequence[int]) -> tuple[VersionSpan, ...]:
    """Compress one version per token to spans; the inverse of `versions_of` where there are no gaps."""
    spans: list[VersionSpan] = []
    start = 0
    for stop in range(1, len(versions) + 1):
        if stop == len(versions) or versions[stop] != versions[start]:
            spans.append(VersionSpan(versions[start], start, stop))
            start = stop
    return tuple(spans)
