"""The task by hand-written episodes: features, hints, format errors and reward."""

from __future__ import annotations

import numpy as np
import pytest

from entr_lab.errors import RangeError
from entr_lab.sim.tasks import Episodes, ToolCallTask
from entr_lab.sim.tasks.tool_call import (
    ANS,
    ARG,
    CALL_TOKEN,
    NO_ANSWER,
    SEP_TOKEN,
    START_TOKEN,
    STYLE_0,
    STYLES,
    THINK_TOKEN,
    TOOL,
    TOOL_0,
    VOCABULARY,
)

TASK = ToolCallTask(turns=2)
DIGITS = [7, 6]  # sums 7 and 13 mod 10 = 3
HINTS = [1, 9]  # said after a wrong tool
RIGHT = np.array([[3, 1, 4, 1, 5, 2, 6, 5, 3, 5]])  # digit 7 → tool 5, digit 6 → tool 6


def turn(tool: int, arg: int, answer: int, *, style: int = 0) -> list[int]:
    return [THINK_TOKEN, STYLE_0 + style, STYLE_0 + 7, CALL_TOKEN, TOOL_0 + tool, arg, answer, SEP_TOKEN]


def play(tokens: list[int], forgiven: bool = False) -> tuple[Episodes, list[np.ndarray]]:
    shape = (1, 1, TASK.horizon)
    episodes = Episodes(TASK, RIGHT, np.array([[DIGITS]]), np.array([[HINTS]]), np.full(shape, forgiven, dtype=bool))
    seen = []
    for token in tokens:
        seen.append(episodes.features[0, 0].copy())
        episodes.step(np.array([[token]]))
    return episodes, seen


def reward(tokens: list[int], forgiven: bool = False) -> float:
    return float(play(tokens, forgiven)[0].reward()[0, 0])


def test_perfect_episode_and_its_features() -> None:
    tokens = turn(5, 7, 7) + turn(6, 6, 3)
    episodes, seen = play(tokens)
    assert episodes.reward().tolist() == [[1.0]]
    assert not episodes.format_errors().any()
    np.testing.assert_array_equal(episodes.tokens[0, 0], tokens)
    assert seen[0].tolist() == [0, START_TOKEN, START_TOKEN, 7, NO_ANSWER]
    assert seen[1].tolist() == [1, THINK_TOKEN, START_TOKEN, 7, NO_ANSWER]
    assert seen[TOOL].tolist() == [TOOL, CALL_TOKEN, STYLE_0 + 7, 7, NO_ANSWER]
    assert seen[ARG].tolist() == [ARG, TOOL_0 + 5, CALL_TOKEN, 7, NO_ANSWER]
    assert seen[ANS].tolist() == [ANS, 7, 7, 7, NO_ANSWER], "the hint is the sum, before it the copied digit"
    assert seen[ANS + 1].tolist() == [7, 7, 7, 7, NO_ANSWER], "the answer shows only from the next turn on"
    assert seen[8].tolist() == [0, SEP_TOKEN, 7, 6, 7]
    assert seen[8 + ANS].tolist() == [ANS, 3, 6, 6, 7]


def test_wrong_tool_gets_the_drawn_hint_and_only_the_last_answer_counts() -> None:
    _, seen = play(turn(0, 7, 1) + turn(6, 6, 3))
    assert seen[ANS][1] == HINTS[0]
    assert seen[8 + ANS][1] == 3, "the second hint is the true sum again"
    assert reward(turn(0, 7, 1) + turn(6, 6, 3)) == 1.0
    assert reward(turn(5, 7, 7) + turn(0, 6, HINTS[1])) == 0.0
    assert reward(turn(5, 7, 7) + turn(0, 6, 3)) == 1.0, "a lucky answer without the tool is right"


def test_any_synonym_is_right() -> None:
    for style in range(STYLES):
        assert reward(turn(5, 7, 7, style=style) + turn(6, 6, 3)) == 1.0


@pytest.mark.parametrize(
    ("position", "token"),
    [(0, SEP_TOKEN), (1, THINK_TOKEN), (2, STYLE_0 - 1), (3, 0), (4, STYLE_0), (5, 8), (6, TOOL_0), (7, 31)],
)
def test_format_error_is_fatal_unless_forgiven(position: int, token: int) -> None:
    tokens = turn(5, 7, 7) + turn(6, 6, 3)
    tokens[position] = token
    episodes, _ = play(tokens)
    assert episodes.format_errors()[0, 0].nonzero()[0].tolist() == [position]
    assert reward(tokens) == 0.0
    assert reward(tokens, forgiven=True) == 1.0


def test_answer_that_is_no_digit_reads_as_none() -> None:
    _, seen = play(turn(5, 7, TOOL_0) + turn(6, 6, 3), forgiven=True)
    assert seen[8][4] == NO_ANSWER


def test_teacher_is_a_distribution_with_the_stated_priors() -> None:
    world = ToolCallTask().world(3)
    teacher = world.teacher()
    np.testing.assert_allclose(teacher.sum(-1), 1.0, atol=1e-12)
    assert teacher.min() == pytest.approx(0.004 / VOCABULARY)
    right = teacher[TOOL, np.arange(10), TOOL_0 + world.right_tool]
    expected = 0.996 * np.where(world.hard, 0.1, 0.6) + 0.004 / VOCABULARY
    np.testing.assert_allclose(right, expected)
    assert world.hard.sum() == 3
    assert set(world.right_tool) == set(range(8)), "every tool is right for some digit"


def test_worlds_differ_by_seed_and_repeat() -> None:
    task = ToolCallTask()
    np.testing.assert_array_equal(task.world(1).right_tool, task.world(1).right_tool)
    maps = {tuple(task.world(seed).right_tool) for seed in range(20)}
    assert len(maps) > 15


@pytest.mark.parametrize("bad", [{"turns": 0}, {"tolerance": 1.1}, {"hard_digits": 11}, {"format_noise": -0.1}])
def test_bad_numbers_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(RangeError):
        ToolCallTask(**bad)  # type: ignore[arg-type]
