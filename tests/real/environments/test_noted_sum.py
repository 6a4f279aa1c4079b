"""The demo task's reward, token by token."""

import asyncio

import pytest

from entr_lab.errors import RangeError
from entr_lab.real.environments.noted_sum import NotedSum
from entr_lab.real.environments.tools import ToolRunner
from entr_lab.real.environments.vocabulary import FixedVocabulary

CODEC = FixedVocabulary()


def reward_of(answer, prompt_index=0, digits=2):
    """Reward of a textual answer to a generated prompt."""
    environment = NotedSum(CODEC, ToolRunner(), digits=digits)
    sample = NotedSum.generate(5, prompt_index, digits=digits)

    async def play():
        await environment.reset(sample)
        return (await environment.step(CODEC.encode(answer))).reward

    return asyncio.run(play())


def right_answer(digits=2):
    """A right answer to the generated prompt; intermediate sums are not judged."""
    prompt = NotedSum.generate(5, 0, digits=digits).prompt
    numbers = [int(d) for d in prompt.rstrip("=")]
    return "".join(f"ajC{d}{sum(numbers[: i + 1]) % 10};" for i, d in enumerate(numbers))


def test_a_right_answer_is_worth_one():
    """Any synonyms and any tools will do."""
    assert reward_of(right_answer()) == 1.0
    assert reward_of(right_answer().replace("aj", "hp").replace("C", "A")) == 1.0


@pytest.mark.parametrize("place", range(12))
def test_any_token_of_a_wrong_class_costs_everything(place):
    """Each place is judged."""
    answer = list(right_answer())
    answer[place] = "!"

    assert reward_of("".join(answer)) == 0.0


def test_copies_and_the_last_sum_are_judged():
    """A digit that is not the prompt's, or a wrong total; a wrong sum on the way is forgiven."""
    answer = list(right_answer())
    other = {str(d): str((d + 1) % 10) for d in range(10)}
    for place, expected in ((3, 0.0), (9, 0.0), (10, 0.0), (4, 1.0)):
        changed = answer.copy()
        changed[place] = other[changed[place]]
        assert reward_of("".join(changed)) == expected, place


@pytest.mark.parametrize("cut", [0, 1, 11])
def test_length_is_judged(cut):
    """Too short, empty, too long, or ended by <eos>."""
    assert reward_of(right_answer()[:cut]) == 0.0
    assert reward_of(right_answer() + ";") == 0.0
    assert reward_of(right_answer()[:-1] + "<eos>") == 0.0
    assert reward_of(right_answer() + "<eos>") == 1.0
    assert reward_of(right_answer() + "<eos><eos>") == 0.0


def test_prompts_are_a_function_of_seed_and_number():
    """So the data cursor of a run is one integer."""
    assert NotedSum.generate(5, 3) == NotedSum.generate(5, 3)
    assert NotedSum.generate(5, 3) != NotedSum.generate(5, 4)
    assert NotedSum.generate(5, 3).prompt != NotedSum.generate(6, 3).prompt
    assert len({NotedSum.generate(0, i).prompt for i in range(200)}) > 190


def test_bounds():
    """No digits, no task."""
    with pytest.raises(RangeError):
        NotedSum(CODEC, ToolRunner(), digits=0)
