"""Finding the final answer, and comparing it."""

import asyncio

import pytest

from entr_lab.real.environments.arithmetic import Arithmetic, final_answer, same_answer
from entr_lab.real.environments.tools import ToolRunner
from entr_lab.real.environments.vocabulary import FixedVocabulary


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3, then 4", "4"),
        ("#### 1,234", "1,234"),
        (r"we get \boxed{7} and \boxed{\frac{1}{2}} done 9", r"\frac{1}{2}"),
        ("The answer is 12.\nCheck: 13", "12."),
        ("<answer>Paris</answer> 5", "Paris"),
        ("-3/4", "-3/4"),
        ("no number", None),
        ("", None),
    ],
)
def test_final_answer(text, answer):
    """Boxed before marked before the last number."""
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1,234", "1234", True),
        ("12.", "12", True),
        ("0.50", "1/2", True),
        ("$7", "7.0", True),
        ("Paris", "paris ", True),
        ("2", "-2", False),
        ("1/0", "1/0", True),
        ("1e5", "100000", False),
        ("9" * 100, "9" * 100, True),
        ("0.3333", "1/3", False),
    ],
)
def test_same_answer(left, right, same):
    """Numbers exactly, text without dressing; nothing is evaluated."""
    assert same_answer(left, right) is same


def test_a_trajectory():
    """One turn, one number."""
    codec = FixedVocabulary()
    sample = Arithmetic.generate(0, 4)
    environment = Arithmetic(codec, ToolRunner())

    async def play(text):
        prompt = await environment.reset(sample)
        return prompt, await environment.step(codec.encode(text))

    prompt, step = asyncio.run(play(sample.ground_truth + "<eos>"))
    assert codec.decode(prompt) == f"<bos>{sample.prompt}"
    assert step.reward == 1.0
    assert asyncio.run(play("<eos>"))[1].reward == 0.0
