"""From a configuration to parts: sizes, streams of the engines, a played trajectory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from entr_lab.errors import ConfigError
from entr_lab.real.config_io import load_config
from entr_lab.real.environments.vocabulary import FixedVocabulary
from entr_lab.real.parts import ModelFacts, check_room, engine_settings, find_model, make_play, read_facts

from .fakes import ScriptedGenerator

FACTS = ModelFacts(vocabulary=56, positions=512)


def test_facts_come_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 56, "max_position_embeddings": 512}))
    assert read_facts(str(tmp_path)) == FACTS
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 56}))
    with pytest.raises(ConfigError, match="has no 'max_position_embeddings'"):
        read_facts(str(tmp_path))


def test_engines_sample_from_streams_of_their_own() -> None:
    config = load_config(None, ["seed=3", "rollout.generators=2"])
    seeds = [engine_settings(config, "m", FACTS, place).seed for place in range(2)]
    other = [engine_settings(load_config(None, ["seed=4"]), "m", FACTS, place).seed for place in range(2)]
    assert len({*seeds, *other}) == 4


def test_engine_settings_follow_the_configuration() -> None:
    config = load_config(None, ["rollout.engine_dtype=float32", "rollout.max_sequences=5", "rollout.kv_cache_mib=32"])
    here = engine_settings(config, "m", FACTS, 0)
    assert (here.device, here.dtype, here.max_sequences, here.kv_cache_mib) == ("cpu", "float32", 5, 32)
    assert here.max_model_len == 512
    assert engine_settings(config, "m", ModelFacts(9, 100_000), 0).max_model_len == 64 + 4096
    gpus = load_config(None, ["cluster.gpus_per_node=8", "cluster.tensor_parallel=2"])
    there = engine_settings(gpus, "m", FACTS, 0)
    assert (there.device, there.tensor_parallel, there.cuda_graphs) == ("cuda", 2, True)


def test_every_seed_is_one_that_numpy_takes() -> None:
    config = load_config(None, [f"seed={2**32 - 1}", "rollout.generators=2"])
    assert all(0 <= engine_settings(config, "m", FACTS, place).seed < 2**32 for place in range(2))


@pytest.mark.parametrize("tokens", [512, 100_000])
def test_rollouts_that_leave_no_room_for_a_prompt_are_refused(tokens: int) -> None:
    with pytest.raises(ConfigError, match=f"max_tokens = {tokens} leaves no room for a prompt in the 512 positions"):
        check_room(load_config(None, [f"rollout.max_tokens={tokens}"]), FACTS)
    check_room(load_config(None, ["rollout.max_tokens=511"]), FACTS)


def test_another_model_is_taken_as_it_is() -> None:
    assert find_model(load_config(None, ["model.path=some/model"])) == "some/model"


def test_a_trajectory_is_played_by_the_configuration() -> None:
    codec = FixedVocabulary()
    config = load_config(None, ["environment.options.digits=1", "rollout.temperature=0.7", "rollout.max_tokens=6"])
    play, samples = make_play(config, codec)
    sample = samples.sample(5)
    generator = ScriptedGenerator(codec.encode(f"aiA{sample.ground_truth}{sample.ground_truth};"))
    rollout = asyncio.run(play(generator, 5, "t0"))
    assert rollout.reward == 1.0
    assert rollout.sample["id"] == sample.id
    assert (generator.samplings[0].temperature, generator.samplings[0].max_tokens) == (0.7, 6)
