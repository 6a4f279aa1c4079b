"""From a configuration to the parts of a run: model folder, vocabulary, engine settings, how a trajectory is played."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from entr_lab.errors import ConfigError
from entr_lab.real.config import RunConfig
from entr_lab.real.config_sections import TINY
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.environments.base import Codec
from entr_lab.real.environments.datasets import SampleStream, open_samples
from entr_lab.real.environments.registry import environment_factory
from entr_lab.real.episode import SamplesTokens, play
from entr_lab.real.evaluation import Evaluations
from entr_lab.real.records import Rollout, SamplingSpec
from entr_lab.real.station import Play

__all__ = ["ModelFacts", "check_room", "engine_settings", "find_model", "make_evaluations", "make_play", "read_facts"]

_HELD_OUT: Final = 1 << 40
"""Number of the first generated sample that no training run gets to."""
_LONGEST_PROMPT: Final = 4096
"""Tokens of a prompt that an engine makes room for, where the model has room for them."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model's configuration says.

    Args:
        vocabulary: rows of the embedding.
        positions: longest sequence.
    """

    vocabulary: int
    positions: int


def find_model(config: RunConfig, progress: Callable[[int, int], None] | None = None) -> str:
    """Return the folder or hub name of the model; the tiny one is built and warm-started if the cache lacks it."""
    if config.model.path != TINY:
        return config.model.path
    from entr_lab.real.tiny_model import Recipe, tiny_model

    return str(tiny_model(Recipe(task=config.environment.name), progress=progress))


def read_facts(model: str, *, trust_remote_code: bool = False) -> ModelFacts:
    """Read a model's configuration.

    Raises:
        ConfigError: there is none, or it does not say what is needed.
    """
    path = Path(model) / "config.json"
    if path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
    else:
        from transformers import AutoConfig

        try:
            content = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code).to_dict()
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"model.path {model!r} is no model that can be loaded: {reason}") from None
    try:
        return ModelFacts(int(content["vocab_size"]), int(content["max_position_embeddings"]))
    except KeyError as error:
        raise ConfigError(f"the configuration of {model!r} has no {error}; use a causal language model.") from None


def check_room(config: RunConfig, facts: ModelFacts) -> None:
    """Refuse rollouts that the model has no positions for.

    Raises:
        ConfigError: no prompt would fit.
    """
    if config.rollout.max_tokens >= facts.positions:
        raise ConfigError(
            f"rollout.max_tokens = {config.rollout.max_tokens} leaves no room for a prompt in the {facts.positions} "
            f"positions of the model; lower it, or set model.path to a model with more."
        )


def engine_settings(config: RunConfig, model: str, facts: ModelFacts, place: int) -> EngineSettings:
    """Return the settings of one engine; each samples from its own stream."""
    rollout, gpus = config.rollout, config.cluster.gpus_per_node
    return EngineSettings(
        model=model,
        device="cuda" if gpus else "cpu",
        dtype=rollout.engine_dtype,
        max_model_len=min(facts.positions, rollout.max_tokens + _LONGEST_PROMPT),
        max_sequences=rollout.max_sequences,
        kv_cache_mib=rollout.kv_cache_mib,
        own_cpu=rollout.own_cpu,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        tensor_parallel=config.cluster.tensor_parallel,
        cuda_graphs=bool(gpus),
        seed=(config.seed * 1000 + place) % (1 << 32),  # numpy takes no more
        trust_remote_code=config.model.trust_remote_code,
    )


def make_evaluations(config: RunConfig, codec: Codec) -> Evaluations:
    """Return when to evaluate and on what.

    Raises:
        ConfigError, DataError: see `make_play`.
    """
    if not config.evaluation.every:
        return Evaluations()
    path = config.evaluation.path
    held_out = config.model_copy(update={"data": config.data.model_copy(update={"path": path, "shuffle": False})})
    play_one, _ = make_play(held_out, codec)
    first = 0 if path else _HELD_OUT
    return Evaluations(config.evaluation.every, play_one, range(first, first + config.evaluation.rollouts))


def make_play(config: RunConfig, codec: Codec) -> tuple[Play, SampleStream]:
    """Return how one trajectory is played, and the stream of samples.

    Raises:
        ConfigError: environment, options or data do not fit.
        DataError: a row of the data cannot be used.
    """
    make = environment_factory(config.environment, codec, config.seed)
    samples = open_samples(config.data, config.environment, config.seed)
    rollout = config.rollout
    sampling = SamplingSpec(rollout.temperature, rollout.top_p, rollout.top_k, rollout.max_tokens)
    max_turns = config.environment.max_turns

    async def play_one(generator: SamplesTokens, number: int, name: str) -> Rollout:
        sample = samples.sample(number)
        return await play(
            make(),
            sample,
            generator,
            sampling,
            max_tokens=rollout.max_tokens,
            max_turns=max_turns,
            request_id=name,
        )

    return play_one, samples
