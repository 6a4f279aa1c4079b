"""A rollout's first turn: its share of the tokens, and a cache that begins with the prompt."""

from __future__ import annotations

from entr_lab.sim.time_rollout import Rollout


def test_the_first_turn_has_its_share_of_the_tokens_and_prefills_the_prompt() -> None:
    one = Rollout(7, 2, 100, 1, 30, 4.0, 1.0)
    three = Rollout(8, 2, 100, 3, 30, 4.0, 0.0)
    assert (one.left, three.left) == (100, 33)
    assert (three.context, three.prefill, three.answers, three.spans) == (30, 30, 0, ())
    assert (one.ticket, one.group, one.started, one.reward) == (7, 2, 4.0, 1.0)
