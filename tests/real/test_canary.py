from __future__ import annotations

import numpy as np
import pytest
import torch

from entr_lab.errors import ConfigError, RangeError
from entr_lab.real.canary import canary_prompts, canary_reference, model_logits
from tests.real.fakes import ToyModel


def test_prompts_are_fixed_and_reach_past_a_cache_block() -> None:
    prompts = canary_prompts(50, count=3)
    assert prompts == canary_prompts(50, count=3)
    assert prompts != canary_prompts(50, count=3, seed=1)
    assert [len(prompt) for prompt in prompts] == [53, 106, 160]
    assert max(max(prompt) for prompt in prompts) < 50
    with pytest.raises(RangeError, match="count"):
        canary_prompts(50, count=0)


def test_reference_is_the_models_own_distribution() -> None:
    model = ToyModel(vocabulary=40)
    prompts = canary_prompts(40, count=2, length=20)
    reference = canary_reference(model_logits(model), prompts)
    for place, prompt in enumerate(prompts):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt])).logits[0, -1].double().numpy()
        p = np.exp(logits - logits.max())
        p /= p.sum()
        assert reference.top_ids[place, 0] == p.argmax()
        np.testing.assert_allclose(reference.top_logp[place], np.sort(np.log(p))[::-1][:16], atol=1e-5)
        np.testing.assert_allclose(reference.entropy[place], -(p * np.log(p)).sum(), atol=1e-5)
        np.testing.assert_allclose(reference.collision[place], (p**2).sum(), atol=1e-6)
    assert reference.prompts == prompts


def test_a_small_vocabulary_has_fewer_top_tokens() -> None:
    reference = canary_reference(model_logits(ToyModel(vocabulary=5)), [[1, 2]])
    assert reference.top_ids.shape == (1, 5)


def test_other_weights_give_another_reference_and_leave_the_model_alone() -> None:
    model = ToyModel()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    other = ToyModel(seed=1)
    found = model_logits(model, dict(other.state_dict()))([1, 2, 3])
    torch.testing.assert_close(found, model_logits(other)([1, 2, 3]))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_unknown_tensors_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no tensor wrong\.name"):
        model_logits(ToyModel(), {"wrong.name": torch.zeros(1)})
