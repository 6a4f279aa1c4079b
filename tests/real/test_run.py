"""What a run reads of its model before any process starts; the run itself is tested with an engine (marker `real`)."""

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("transformers")

from entr_lab.errors import ConfigError
from entr_lab.real.config_io import load_config
from entr_lab.real.run import prepare_model


def test_a_models_facts_are_read_from_its_folder(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 12, "max_position_embeddings": 34}))
    config = load_config(None, [f"model.path={json.dumps(str(tmp_path))}"])

    with pytest.raises(ConfigError, match=r"leaves no room for a prompt in the 34 positions"):
        prepare_model(config)

    path, facts = prepare_model(load_config(None, ["rollout.max_tokens=30", f"model.path={json.dumps(str(tmp_path))}"]))

    assert path == str(tmp_path)
    assert (facts.vocabulary, facts.positions) == (12, 34)


def test_a_folder_that_is_no_language_model_is_named(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 12}))
    config = load_config(None, [f"model.path={json.dumps(str(tmp_path))}"])
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        prepare_model(config)
