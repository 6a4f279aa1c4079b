"""The embedded model: built, cached whole, gated, loadable by everything that will load it."""

import asyncio
import json

import pytest
import torch

from entr_lab.errors import EngineError, RangeError, UnknownNameError
from entr_lab.objective import get_method
from entr_lab.real.config_sections import ModelConfig, TrainerConfig
from entr_lab.real.environments.vocabulary import PIECES, load_codec
from entr_lab.real.records import SamplingSpec
from entr_lab.real.tiny_model import Recipe, cache_folder, start_reward, tiny_model
from entr_lab.real.torch_generator import TorchGenerator
from entr_lab.real.trainer import Trainer, load_model

from .fakes import toy_rollouts

QUICK = {"steps": 2, "batch": 4, "hidden": 32, "feed_forward": 32, "gate_rollouts": 4, "least_reward": 0.0}


def test_the_recipe_is_the_key():
    """Every field changes the digest; equal recipes share it."""
    assert Recipe().digest == Recipe().digest
    digests = {Recipe(**change).digest for change in ({}, {"seed": 1}, {"steps": 9}, {"teacher": {"digits": 3}})}
    assert len(digests) == 4


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    """A variable of our own, else the user's cache folder."""
    monkeypatch.setenv("ENTR_LAB_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    monkeypatch.delenv("ENTR_LAB_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "entr-lab"


def test_wrong_recipes_are_refused():
    """Unknown tasks and impossible sizes."""
    with pytest.raises(UnknownNameError, match="calculator"):
        Recipe(task="calculater")
    for wrong in ({"steps": 0}, {"matrix_rate": 0}, {"least_reward": 2}):
        with pytest.raises(RangeError):
            Recipe(**wrong)


@pytest.mark.parametrize("task", ["noted-sum", "calculator"])
def test_a_build_is_cached_and_loads_everywhere(tmp_path, task):
    """Second call: the folder, without work. Trainer, codec and generator read it."""
    pytest.importorskip("transformers")
    recipe = Recipe(task=task, **QUICK)
    steps = []
    folder = tiny_model(recipe, cache=tmp_path, progress=lambda done, total: steps.append((done, total)))
    again = tiny_model(recipe, cache=tmp_path, progress=lambda *_: steps.append(None))

    assert steps == [(1, 2), (2, 2)]
    assert again == folder
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert json.loads((folder / "recipe.json").read_text())["task"] == task
    model = load_model(ModelConfig(), folder, torch.device("cpu"))
    Trainer(model, TrainerConfig())
    assert not model.config.tie_word_embeddings
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]
    assert load_codec(folder, model.config.vocab_size).pieces == PIECES
    (completion,) = asyncio.run(TorchGenerator(model).generate([1], SamplingSpec(max_tokens=3)))
    assert len(completion.token_ids) == 3


def test_a_build_below_the_gate_is_refused_and_not_cached(tmp_path):
    """A model that solves nothing is no start for RL."""
    pytest.importorskip("transformers")
    with pytest.raises(EngineError, match=r"less than 0\.2"):
        tiny_model(Recipe(**{**QUICK, "least_reward": 0.2}), cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_builds_repeat(tmp_path):
    """The same recipe gives the same weights; the caller's random state is left alone."""
    pytest.importorskip("transformers")
    state = torch.get_rng_state()
    folders = [tiny_model(Recipe(**QUICK), cache=tmp_path / name) for name in ("a", "b")]

    assert torch.equal(torch.get_rng_state(), state)
    assert (folders[0] / "model.safetensors").read_bytes() == (folders[1] / "model.safetensors").read_bytes()


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    """One sentence, not a traceback of the library's."""
    pytest.importorskip("transformers")
    with pytest.raises(EngineError, match="cannot load"):
        load_model(ModelConfig(), tmp_path, torch.device("cpu"))


@pytest.mark.slow
def test_the_default_recipe_passes_its_gate(tmp_path):
    """The warm start teaches the task well enough, and leaves something to learn."""
    pytest.importorskip("transformers")
    folder = tiny_model(cache=tmp_path)
    model = load_model(ModelConfig(), folder, torch.device("cpu"))

    assert 0.2 <= start_reward(model, Recipe()) < 0.5
    assert sum(p.numel() for p in model.parameters()) == 232_544


def test_activation_checkpointing_changes_nothing_but_memory(tmp_path):
    """On a Hugging Face model: same loss, same weights after an update."""
    pytest.importorskip("transformers")
    folder = tiny_model(Recipe(**QUICK), cache=tmp_path)
    results = []
    for wanted in (False, True):
        model = load_model(ModelConfig(), folder, torch.device("cpu"))
        trainer = Trainer(model, TrainerConfig(activation_checkpointing=wanted, micro_batch_tokens=64))
        step = trainer.update(toy_rollouts(model=model), 0, get_method("entr"))
        results.append((step.metrics["loss"], trainer.weights()))

    assert results[0][0] == pytest.approx(results[1][0], abs=1e-6)
    for name, value in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], value, atol=1e-5, rtol=1e-5)
