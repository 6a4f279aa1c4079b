"""Teachers draw from the distributions that they hand out, and their answers are what the task rewards."""

import asyncio

import numpy as np
import pytest

from entr_lab.errors import RangeError
from entr_lab.real.environments.base import Sample
from entr_lab.real.environments.calculator import Calculator
from entr_lab.real.environments.noted_sum import NotedSum
from entr_lab.real.environments.tools import ToolRunner
from entr_lab.real.environments.vocabulary import FixedVocabulary
from entr_lab.real.teacher import CalculatorTeacher, NotedSumTeacher

CODEC = FixedVocabulary()


def judged(environment, prompt, truth, completions):
    """Reward after the completions."""

    async def play():
        await environment.reset(Sample("s", prompt, truth))
        for completion in completions:
            step = await environment.step(completion)
        return step.reward

    return asyncio.run(play())


def noted_sum_rewards(teacher, count=200):
    """Rewards of the teacher's own demonstrations."""
    drawn = teacher.draw(np.random.default_rng(0), count)
    k = teacher.digits
    rewards = []
    for row in drawn.ids:
        environment = NotedSum(CODEC, ToolRunner(), digits=k)
        rewards.append(judged(environment, CODEC.decode(row[1 : k + 2].tolist()), None, [row[k + 2 :].tolist()]))
    return np.array(rewards)


def test_a_perfect_teacher_is_always_rewarded():
    """With the right tools, no slips and no noise every demonstration is right; the default one is right at times."""
    perfect = NotedSumTeacher(right_tool=1.0, hard_right_tool=1.0, slip=0.0, noise=0.0)

    assert noted_sum_rewards(perfect).mean() == 1.0
    assert 0.15 < noted_sum_rewards(NotedSumTeacher(), 1000).mean() < 0.4


def test_samples_follow_the_targets():
    """Each place's target is a distribution that the next token was drawn from: their log-loss is its entropy."""
    drawn = NotedSumTeacher(digits=2).draw(np.random.default_rng(1), 4000)
    learnt = drawn.targets.sum(-1) > 0

    np.testing.assert_allclose(drawn.targets[learnt].sum(-1), 1, atol=1e-5)
    assert learnt.sum(1).tolist() == [13] * 4000
    assert not learnt[:, :3].any()
    following = np.take_along_axis(drawn.targets[:, :-1], drawn.ids[:, 1:, None], axis=2)[..., 0][learnt[:, :-1]]
    target = drawn.targets[learnt].astype(np.float64)
    entropy = -(target * np.log(np.maximum(target, 1e-300))).sum(-1)
    assert -np.log(following).mean() == pytest.approx(entropy.mean(), abs=0.02)


def test_maps_belong_to_the_task_seed():
    """Another seed, another right tool for some digit."""
    first, same, other = (NotedSumTeacher(task_seed=s)._maps() for s in (0, 0, 1))

    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert not np.array_equal(first[3], other[3])
    for map_ in first[:3]:
        np.testing.assert_allclose(map_.sum(-1), 1)


def dialogues(teacher, count=100):
    """Texts of the demonstrations, padding left out, with what the policy wrote in each turn."""
    drawn = teacher.draw(np.random.default_rng(0), count)
    for ids, targets in zip(drawn.ids, drawn.targets, strict=True):
        text = CODEC.decode(ids.tolist()).split("<eos>")[0] + "<eos>"
        written = np.concatenate([[False], targets.sum(-1)[:-1] > 0])
        turns = CODEC.decode(ids[written].tolist()).replace("</call>", "</call>|").split("|")
        yield text, turns


def test_calculator_dialogues_are_what_the_environment_answers():
    """Tool answers in a demonstration are the environment's own, and the reward is that of the chosen order."""
    rewards = []
    for text, turns in dialogues(CalculatorTeacher(right_order=1.0)):
        prompt = text.split("<call>")[0].removeprefix("<bos>")
        environment = Calculator(CODEC, ToolRunner())

        async def play(environment=environment, prompt=prompt, turns=turns):
            ids = await environment.reset(Sample("s", prompt, str(eval(prompt.rstrip("=")))))
            for turn in turns:
                ids += CODEC.encode(turn)
                step = await environment.step(CODEC.encode(turn))
                ids += step.context_ids
            return CODEC.decode(ids), step.reward

        replayed, reward = asyncio.run(play())
        assert replayed == text
        rewards.append(reward)
    assert np.mean(rewards) == 1.0


def test_a_teacher_with_the_wrong_order_is_wrong_where_it_matters():
    """`a+b*c` added first is wrong unless the numbers hide it."""
    wrong = [
        (text, turns) for text, turns in dialogues(CalculatorTeacher(right_order=0.0)) if "+" in text.split("*")[0]
    ]

    assert any(turns[-1] != f"<answer>{eval(text.split('=')[0].removeprefix('<bos>'))}<eos>" for text, turns in wrong)


def test_bounds():
    """Probabilities and sizes."""
    for wrong in ({"slip": 2}, {"digits": 0}, {"hard_digits": 11}):
        with pytest.raises(RangeError):
            NotedSumTeacher(**wrong)
    with pytest.raises(RangeError):
        CalculatorTeacher(right_order=-1)
