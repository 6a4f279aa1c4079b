"""The calculator dialogue: one operation a call, errors shown, answers judged as numbers."""

import asyncio

import pytest

from entr_lab.real.environments.base import Sample
from entr_lab.real.environments.calculator import Calculator
from entr_lab.real.environments.tools import ToolRunner
from entr_lab.real.environments.vocabulary import FixedVocabulary

from .words import WordCodec

CODEC = FixedVocabulary()


def steps(*texts, codec=CODEC, truth="22", **options):
    """Feed completions; return the steps."""
    environment = Calculator(codec, ToolRunner(), **options)

    async def play():
        await environment.reset(Sample("s", "7+3*5=", truth))
        return [await environment.step(codec.encode(text)) for text in texts]

    return asyncio.run(play())


def test_call_and_answer():
    """A call gives context, an answer ends it."""
    call, answer = steps("<call>3*5</call>", "<answer>22<eos>")

    assert CODEC.decode(call.context_ids) == "<result>15</result>"
    assert not call.done
    assert answer.reward == 1.0
    assert answer.info == {"answered": True, "tool_calls": 1}


@pytest.mark.parametrize("expression", ["7+3*5", "1/0", "3+", "", "(((("])
def test_refused_calls_are_shown_as_a_question_mark_to_the_tiny_model(expression):
    """Two operators, or no expression: the tiny vocabulary has no words to say why."""
    (step,) = steps(f"<call>{expression}</call>")

    assert CODEC.decode(step.context_ids) == "<result>?</result>"
    assert step.info == {"tool_worked": False}


def test_refused_calls_are_explained_to_a_language_model():
    """With letters in the vocabulary the model reads what was wrong."""
    (step,) = steps("<call>7+3*5</call>", codec=WordCodec())

    assert "at most 1 operator" in WordCodec().decode(step.context_ids)
    assert steps("<call>7+3*5</call>", codec=WordCodec(), operators_per_call=2)[0].info == {"tool_worked": True}


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<answer>22<eos>", 1.0),
        ("<answer>22</answer>", 1.0),
        ("<answer> 22.0 <eos>", 1.0),
        ("<answer>21+1<eos>", 0.0),
        ("<answer>23<eos>", 0.0),
        ("<answer><eos>", 0.0),
        ("22<eos>", 0.0),
        ("<eos>", 0.0),
        ("<call>22", 0.0),
        ("<answer>22<eos>3", 0.0),
    ],
)
def test_answers(text, reward):
    """Right numbers in the right form only; an expression is no answer."""
    codec = FixedVocabulary((*CODEC.pieces, "</answer>"))
    (step,) = steps(text, codec=codec)

    assert step.reward == reward


def test_what_comes_first_counts():
    """An answer before a call ends it; a call before an answer is made."""
    first, second = steps("<answer>22<call>1+1</call>"), steps("<call>1+1</call><answer>22")

    assert first[0].done
    assert not second[0].done


def test_generated_expressions_have_exact_truths():
    """Ground truths agree with Python on the plain expression."""
    for index in range(50):
        sample = Calculator.generate(1, index, terms=4, largest=12)
        assert int(sample.ground_truth) == eval(sample.prompt.rstrip("="))


def test_stop_tokens():
    """The closing mark stops the engine where it is one token."""
    assert Calculator(CODEC, ToolRunner()).stop_ids == (CODEC.eos_id, CODEC.ids["</call>"])
    assert Calculator(WordCodec(), ToolRunner()).stop_ids == (WordCodec().eos_id,)
