"""One trajectory: columns, token in and token out, limits, aborts, versions that change on the way."""

import asyncio

import numpy as np
import pytest
import torch

from entr_lab.errors import EngineError
from entr_lab.real.environments.base import Sample, Step
from entr_lab.real.environments.calculator import Calculator
from entr_lab.real.environments.tools import ToolRunner
from entr_lab.real.environments.vocabulary import FixedVocabulary
from entr_lab.real.episode import play
from entr_lab.real.records import SamplingSpec

from .fakes import FakeGenerator, FakeTransfer, ScriptedGenerator, ToyModel

CODEC = FixedVocabulary()
SAMPLE = Sample("s", "7+3*5=", "22", "calculator")


def calculator(**options):
    """A fresh calculator."""
    return Calculator(CODEC, ToolRunner(), **options)


def run(generator, *, max_tokens=64, max_turns=8, environment=None):
    """Play the sample to its end."""
    environment = environment or calculator()
    return asyncio.run(play(environment, SAMPLE, generator, SamplingSpec(), max_tokens=max_tokens, max_turns=max_turns))


def test_several_turns_with_a_tool():
    """Calls, answers and the final answer lie in order; only what the model wrote is trainable."""
    texts = ["<call>3*5</call>", "<call>7+15</call>", "<answer>22<eos>"]
    generator = ScriptedGenerator(*map(CODEC.encode, texts))
    rollout = run(generator)

    assert CODEC.decode(rollout.token_ids.tolist()) == (
        "<call>3*5</call><result>15</result><call>7+15</call><result>22</result><answer>22<eos>"
    )
    sampled = CODEC.decode(rollout.token_ids[rollout.trainable].tolist())
    assert sampled == "".join(texts)
    assert rollout.reward == 1.0
    assert rollout.info == {"truncated": False, "tool_worked": True, "answered": True, "tool_calls": 2}
    assert rollout.sample == {"id": "s", "source": "calculator", "ground_truth": "22"}
    for column in (rollout.logp_mu, rollout.entropy_mu, rollout.collision_mu):
        np.testing.assert_array_equal(np.isnan(column), ~rollout.trainable)
    assert sorted(set(rollout.turn.tolist())) == [0, 1, 2]
    assert (np.diff(rollout.turn) >= 0).all()


def test_context_carries_the_version_of_the_token_before_it():
    """A tool's answer has no version of its own."""
    rollout = run(ScriptedGenerator(*map(CODEC.encode, ["<call>3*5</call>", "<answer>22<eos>"])))
    first_context = int((~rollout.trainable).argmax())

    assert rollout.weight_version[first_context - 1] == 1
    assert set(rollout.weight_version[~rollout.trainable].tolist()) == {1}
    assert rollout.weight_version[-1] == 2


def test_what_the_model_wrote_is_never_tokenised_again():
    """The next prompt holds the sampled ids themselves, also where the text has another tokenisation."""

    class Merging(FixedVocabulary):
        """Knows `15` as one token, which the model did not use."""

        def __init__(self):
            super().__init__((*CODEC.pieces, "15"))

    codec = Merging()
    apart = [codec.ids[piece] for piece in ("<call>", "1", "5", "+", "7", "</call>")]
    generator = ScriptedGenerator(apart, codec.encode("<answer>22<eos>"))
    environment = Calculator(codec, ToolRunner())
    rollout = run(generator, environment=environment)

    start = len(generator.prompts[0])
    assert codec.encode(codec.decode(apart)) != apart
    assert generator.prompts[1][start : start + len(apart)] == apart
    assert rollout.token_ids[: len(apart)].tolist() == apart
    answer = len(codec.encode("<answer>22<eos>"))
    assert generator.prompts[1] == generator.prompts[0] + rollout.token_ids[:-answer].tolist()


def test_limits_shrink_with_what_was_written():
    """The engine may write what is left of the budget, tool answers counted; stop tokens are the environment's."""
    generator = ScriptedGenerator(*map(CODEC.encode, ["<call>3*5</call>", "<answer>22<eos>"]))
    run(generator, max_tokens=30)

    assert [s.max_tokens for s in generator.samplings] == [30, 30 - 5 - 4]
    assert set(generator.samplings[0].stop_token_ids) == {CODEC.eos_id, CODEC.ids["</call>"]}


@pytest.mark.parametrize(
    ("limits", "tokens"), [({"max_turns": 1}, 5), ({"max_tokens": 9}, 5), ({"max_tokens": 10}, 10)]
)
def test_running_out_is_worth_nothing_and_said(limits, tokens):
    """No turn is left, the tool's answer does not fit, or only one token fits after it."""
    generator = ScriptedGenerator(CODEC.encode("<call>3*5</call>"), CODEC.encode("1"))
    rollout = run(generator, **limits)

    assert rollout.reward == 0.0
    assert rollout.info["truncated"] is (tokens == 5)
    assert len(rollout.token_ids) == tokens


def test_an_abort_is_an_error():
    """Half a completion must not be trained on as if it were whole."""
    with pytest.raises(EngineError, match="aborted in turn 0"):
        run(ScriptedGenerator(CODEC.encode("<call>"), reason="abort"))
    with pytest.raises(EngineError, match="aborted"):
        run(ScriptedGenerator([]))


def test_versions_change_inside_a_trajectory():
    """Weights pushed while tokens are sampled show in each token's version, and the log-probs are those weights'."""

    class OneTurn:
        stop_ids = ()

        async def reset(self, sample):
            return [1, 2, 3]

        async def step(self, token_ids):
            return Step(reward=1.0)

    generator = FakeGenerator(ToyModel(), seed=3)
    transfer = FakeTransfer([generator])
    later = ToyModel(seed=9)

    async def both():
        task = asyncio.create_task(play(OneTurn(), SAMPLE, generator, SamplingSpec(), max_tokens=10, max_turns=1))
        for _ in range(6):
            await asyncio.sleep(0)
        await transfer.push(later.state_dict(), 1)
        return await task

    rollout = asyncio.run(both())
    versions = rollout.weight_version.tolist()
    assert versions == sorted(versions)
    assert set(versions) == {0, 1}
    ids = torch.tensor([[1, 2, 3, *rollout.token_ids.tolist()]])
    for version, model in ((0, ToyModel()), (1, later)):
        with torch.no_grad():
            logp = model(input_ids=ids).logits[0, 2:-1].log_softmax(-1).gather(-1, ids[0, 3:, None])[:, 0].numpy()
        mine = rollout.weight_version == version
        np.testing.assert_allclose(rollout.logp_mu[mine], logp[mine], atol=1e-5)
