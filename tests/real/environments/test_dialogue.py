"""The tool dialogue apart from any tool: framing, order, fresh starts, tools that fail."""

import asyncio

import pytest

from entr_lab.real.environments.base import Sample
from entr_lab.real.environments.dialogue import ToolDialogue
from entr_lab.real.environments.tools import ToolRunner

from .words import WordCodec

CODEC = WordCodec()


class Echo(ToolDialogue):
    """Its tool repeats the call; any answer equal to the truth is right."""

    def tool(self, argument):
        if argument == "crash":
            raise RuntimeError("boom")
        return argument

    def score(self, answer, sample):
        return float(answer == sample.ground_truth)


def feed(*texts, truth="x", **options):
    """Steps of some completions."""
    environment = Echo(CODEC, ToolRunner(), **options)

    async def play():
        await environment.reset(Sample("s", "p", truth))
        return [await environment.step(CODEC.encode(text)) for text in texts]

    return asyncio.run(play())


def test_the_frame_of_a_chat_template():
    """What stands around a tool's answer is a setting."""
    (step,) = feed("<call>hi</call>", before_result="<|end|>\n[", after_result="]")

    assert CODEC.decode(step.context_ids) == "<|end|>\n[hi]"


def test_calls_may_span_lines_and_text_around_them_is_free():
    """Models think before they call; only the first call of a completion is made."""
    (step,) = feed("I think.\n<call>\n a b \n</call> and <call>c</call>")

    assert CODEC.decode(step.context_ids) == "<result>a b</result>"


def test_a_tool_that_crashes_answers_an_error():
    """The dialogue goes on."""
    step, last = feed("<call>crash</call>", "<answer>x</answer>")

    assert CODEC.decode(step.context_ids) == "<result>error: RuntimeError: boom</result>"
    assert step.info == {"tool_worked": False}
    assert last.reward == 1.0


@pytest.mark.parametrize(
    ("text", "reward", "answered"),
    [("<answer>x", 1.0, True), ("<answer> x </answer>z", 1.0, True), ("x", 0.0, False), ("", 0.0, False)],
)
def test_answers(text, reward, answered):
    """To the closing mark or the end of the turn."""
    (step,) = feed(text + chr(CODEC.eos_id))

    assert (step.reward, step.info["answered"]) == (reward, answered)


def test_a_reset_starts_over():
    """Counters belong to one trajectory."""
    environment = Echo(CODEC, ToolRunner())

    async def play():
        counts = []
        for _ in range(2):
            await environment.reset(Sample("s", "p", "x"))
            await environment.step(CODEC.encode("<call>a</call>"))
            counts.append((await environment.step(CODEC.encode("<answer>x"))).info["tool_calls"])
        return counts

    assert asyncio.run(play()) == [1, 1]
