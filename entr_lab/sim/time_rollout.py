"""One trajectory on its way through a generator: what it needs, where it is, what it has."""

from __future__ import annotations

from entr_lab.pipeline.versions import VersionSpan

__all__ = ["Rollout"]


class Rollout:
    """One trajectory on its way through a generator.

    Attributes:
        ticket: the pipeline's number of this start of the rollout.
        group: its group.
        reward: the reward that it will have.
        tokens: response tokens in all.
        left: response tokens of the turn that is next or running.
        context: tokens in the cache when that turn starts.
        prefill: tokens to prefill when it starts.
        turns: turns that remain, this one included.
        started: when it was dispatched, in seconds.
        entered: when it came to its engine for the present turn, in seconds.
        answers: tokens of tool answers in its context.
        engine: index of its engine.
        spans: versions of the tokens of the turns that have ended.
        v_start, first_mark: its engine's attained service, and number of updates, when the present turn started.
    """

    __slots__ = (
        "answers", "context", "engine", "entered", "first_mark", "group", "left", "prefill", "reward", "spans",
        "started", "ticket", "tokens", "turns", "v_start",
    )  # fmt: skip

    entered: float
    engine: int
    v_start: float
    first_mark: int

    def __init__(
        self, ticket: int, group: int, tokens: int, turns: int, prompt: int, started: float, reward: float
    ) -> None:
        self.ticket = ticket
        self.group = group
        self.tokens = tokens
        self.left = tokens if turns == 1 else tokens // turns
        self.context = self.prefill = prompt
        self.turns = turns
        self.started = started
        self.reward = reward
        self.answers = 0
        self.spans: tuple[VersionSpan, ...] = ()
