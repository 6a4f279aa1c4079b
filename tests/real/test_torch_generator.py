"""The plain torch generator: what it records is what it samples from."""

import asyncio

import numpy as np
import pytest
import torch

from entr_lab.real.records import SamplingSpec
from entr_lab.real.torch_generator import TorchGenerator, processed_logits

from .fakes import ToyModel


def run(generator, *calls):
    """Run calls together; a call is (prompt, spec, n)."""

    async def together():
        return await asyncio.gather(*(generator.generate(*call) for call in calls))

    return asyncio.run(together())


@pytest.mark.parametrize("spec", [SamplingSpec(max_tokens=9), SamplingSpec(max_tokens=9, temperature=0.6)])
def test_records_are_the_models_own(spec):
    """log μ, H and Σ μ² of ragged requests equal a recomputation one by one."""
    prompts = ([1, 2, 3], [4], [5, 6, 7, 8, 9])
    results = run(TorchGenerator(ToyModel()), *((p, spec, 2) for p in prompts))

    for prompt, completions in zip(prompts, results, strict=True):
        assert len(completions) == 2
        for completion in completions:
            ids = torch.tensor([[*prompt, *completion.token_ids.tolist()]])
            with torch.no_grad():
                logits = ToyModel()(input_ids=ids).logits[0, len(prompt) - 1 : -1] / spec.temperature
            probs = logits.softmax(-1)
            chosen = probs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
            np.testing.assert_allclose(completion.logp_mu, chosen.log(), atol=1e-5)
            np.testing.assert_allclose(completion.entropy_mu, -(probs * probs.log()).sum(-1), atol=1e-5)
            np.testing.assert_allclose(completion.collision_mu, (probs**2).sum(-1), atol=1e-5)
            assert completion.finish_reason == "length"


def test_truncated_distributions():
    """top-k and top-p keep the most likely tokens and renormalise; ties aside, sizes are exact."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()

    for spec, expected in (
        (SamplingSpec(top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (SamplingSpec(top_p=0.6), [4 / 7, 3 / 7, 0, 0]),
        (SamplingSpec(top_p=0.75), [4 / 9, 3 / 9, 2 / 9, 0]),
        (SamplingSpec(top_p=1e-6), [1, 0, 0, 0]),
        (SamplingSpec(top_k=9), [0.4, 0.3, 0.2, 0.1]),
        (SamplingSpec(temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
    ):
        probs = processed_logits(logits, spec).softmax(-1)
        torch.testing.assert_close(probs, torch.tensor(expected, dtype=torch.float32))


def test_samples_follow_the_distribution():
    """First tokens of many completions have the recorded probabilities."""
    ((completions),) = run(TorchGenerator(ToyModel()), ([1, 2], SamplingSpec(max_tokens=1), 4000))
    counts = np.bincount([int(c.token_ids[0]) for c in completions], minlength=12) / 4000
    with torch.no_grad():
        probs = ToyModel()(input_ids=torch.tensor([[1, 2]])).logits[0, -1].softmax(-1).numpy()

    assert np.abs(counts - probs).max() < 4 * np.sqrt(0.25 / 4000)


def test_stop_tokens_end_a_completion_and_are_part_of_it():
    """The sampled stop token is trained on."""
    ((completions),) = run(TorchGenerator(ToyModel()), ([1], SamplingSpec(max_tokens=50, stop_token_ids=(3, 4)), 20))

    for completion in completions:
        inside = np.isin(completion.token_ids, [3, 4])
        assert not inside[:-1].any()
        assert inside[-1] == (completion.finish_reason == "stop")
    assert {c.finish_reason for c in completions} >= {"stop"}


def test_weights_may_change_on_the_way():
    """Each token carries the version that sampled it."""
    generator = TorchGenerator(ToyModel())

    async def both():
        task = asyncio.create_task(generator.generate([1], SamplingSpec(max_tokens=12)))
        for _ in range(8):
            await asyncio.sleep(0)
        generator.load(ToyModel(seed=4).state_dict(), 5)
        return (await task)[0]

    versions = asyncio.run(both()).weight_version.tolist()
    assert versions == sorted(versions)
    assert set(versions) == {0, 5}


def test_an_error_reaches_every_waiting_call():
    """Nobody waits for ever for a model that broke."""

    class Broken(ToyModel):
        def forward(self, input_ids, use_cache=False):
            raise RuntimeError("broken")

    async def both():
        generator = TorchGenerator(Broken())
        calls = [generator.generate([1], SamplingSpec()) for _ in range(2)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.gather(generator._runner, return_exceptions=True)
        return results

    assert [str(error) for error in asyncio.run(both())] == ["broken", "broken"]
