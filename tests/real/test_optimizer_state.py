"""Optimiser state as flat tensors."""

import pytest
import torch

from entr_lab.errors import EngineError
from entr_lab.real.optimizer_state import flatten, restore

from .fakes import ToyModel


def stepped(seed=0):
    """A model and its optimiser after one step."""
    model = ToyModel(seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(input_ids=torch.tensor([[1, 2, 3]])).logits.square().mean().backward()
    optimizer.step()
    return model, optimizer


def test_names_are_the_models():
    """Three tensors for each parameter; empty before any step."""
    model, optimizer = stepped()
    flat = flatten(model, optimizer)
    names = [name for name, _ in model.named_parameters()]

    assert {key.rpartition("/")[0] for key in flat} == set(names)
    assert {key.rpartition("/")[2] for key in flat} == {"exp_avg", "exp_avg_sq", "step"}
    assert flatten(model, torch.optim.AdamW(model.parameters())) == {}


def test_what_was_flattened_is_a_copy():
    """The next step must not reach a checkpoint that is being written."""
    model, optimizer = stepped()
    flat = flatten(model, optimizer)
    before = {key: value.clone() for key, value in flat.items()}
    optimizer.step()

    assert all(torch.equal(value, before[key]) for key, value in flat.items())


def test_foreign_state_is_refused():
    """A parameter that the model lacks, or another shape."""
    model, optimizer = stepped()
    weights, flat = model.state_dict(), flatten(model, optimizer)
    for key, value, message in (
        ("gone/exp_avg", torch.zeros(1), "'gone'"),
        ("lm_head.weight/exp_avg", torch.zeros(2, 2), "lm_head.weight/exp_avg"),
    ):
        with pytest.raises(EngineError, match=message):
            restore(model, optimizer, weights, {**flat, key: value})
