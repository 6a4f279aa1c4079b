"""The trainer's process, with a toy model: publish, train, publish; attribution; state; the check of an engine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from entr_lab.errors import EngineError
from entr_lab.real import trainer_host
from entr_lab.real.config_io import load_config
from entr_lab.real.self_check import CHECK_SAMPLING
from entr_lab.real.torch_generator import TorchGenerator
from entr_lab.real.trainer_host import TrainerHost
from entr_lab.real.weight_transfer import read_weights

from .fakes import ToyModel, toy_rollouts

pytest.importorskip("safetensors")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[TrainerHost] = []

    def make(*settings: str, checkpoint: Any = None) -> TrainerHost:
        monkeypatch.setattr(trainer_host, "load_model", lambda *_: ToyModel())
        monkeypatch.setattr(trainer_host, "canary_prompts", lambda vocabulary: ((1, 2, 3), (4,)))
        config = load_config(None, ["rollout.engine_dtype=float32", *settings])
        made.append(TrainerHost(config, "m", 12, checkpoint))
        return made[-1]

    yield make
    for each in made:
        each.close()
        assert not each.sender.folder.exists()


def test_a_step_publishes_what_it_trained(host: Any) -> None:
    here = host("method.name=async-grpo")
    before = here.publish()
    done = here.step(toy_rollouts(), 0, probe=False)
    assert (before.version, done.manifest.version, done.train.version) == (0, 1, 1)
    assert done.attribution == {}
    sent, own = read_weights(done.manifest.to_wire()), here.trainer.weights()
    assert all(torch.equal(sent[name], own[name]) for name in sent)
    assert any(not torch.equal(sent[name], tensor) for name, tensor in read_weights(before.to_wire()).items())
    here.release(before)
    assert not Path(before.path).exists()
    assert Path(done.manifest.path).exists()


def test_the_rehearsal_differs_in_every_tensor(host: Any) -> None:
    here = host()
    odd = read_weights(here.publish_perturbed().to_wire())
    true = here.trainer.weights()
    assert all(not torch.equal(odd[name], true[name]) for name in odd if true[name].any())


def test_a_probe_splits_the_log_ratio(host: Any) -> None:
    here = host("attribution.every=1", "attribution.sequences=3")
    for target in range(3):
        done = here.step(toy_rollouts(version=target, spread=min(target, 1)), target, probe=target > 0)
        assert bool(done.attribution) == (target > 0)
    assert done.attribution["probe_tokens"] > 0
    assert done.attribution["mismatch_rms"] > 0


def test_state_goes_on_bit_for_bit(host: Any) -> None:
    first = host()
    first.step(toy_rollouts(), 0, probe=False)
    saved = first.state()
    one = first.step(toy_rollouts(seed=1, version=1), 1, probe=False)
    second = host(checkpoint=saved)
    two = second.step(toy_rollouts(seed=1, version=1), 1, probe=False)
    assert one.train.metrics["loss"] == two.train.metrics["loss"]
    for name, tensor in first.trainer.weights().items():
        assert torch.equal(tensor, second.trainer.weights()[name]), name


def test_an_engine_is_checked_by_what_it_recorded(host: Any) -> None:
    here = host()
    generator = TorchGenerator(ToyModel())
    settings = SimpleNamespace(dtype="float32")

    async def sample() -> Any:
        return [(prompt, await generator.generate(prompt, CHECK_SAMPLING)) for prompt in here.prompts]

    answers = asyncio.run(sample())
    assert here.check(answers, CHECK_SAMPLING, settings).worst < 1e-3
    prompt, (completion,) = answers[0]
    wrong = type(completion)(
        completion.token_ids,
        completion.logp_mu,
        completion.entropy_mu + np.float32(0.3),
        completion.collision_mu,
        completion.weight_version,
        completion.finish_reason,
    )
    with pytest.raises(EngineError, match="record of its sampling is wrong"):
        here.check([(prompt, [wrong])], CHECK_SAMPLING, settings)
