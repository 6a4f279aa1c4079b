"""Costs from chips and models: the roofline's arithmetic, and what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from entr_lab.errors import ConfigError, UnknownNameError
from entr_lab.sim.plan_hardware import CONSTANTS, GPUS, MODELS, engine_costs, slots, sync_costs, trainer_costs


def test_a_dense_model_reads_all_its_weights_whatever_the_batch() -> None:
    model = MODELS["qwen2.5-7b"]
    assert (model.weights_read(np.arange(1, 9)) == model.parameters).all()


def test_experts_read_their_active_part_for_one_token_and_all_in_the_end() -> None:
    model = MODELS["qwen3-30b-a3b"]
    read = model.weights_read(np.array([1.0, 2.0, 1e4]))
    assert read[0] == pytest.approx(model.active)
    assert read[0] < read[1] < read[2]
    assert read[2] == pytest.approx(model.parameters)


def test_the_expected_number_of_experts_is_that_of_a_draw() -> None:
    model, rng, batch = MODELS["qwen3-30b-a3b"], np.random.default_rng(0), 10
    touched = [
        len(set().union(*(rng.choice(model.experts, model.routed, replace=False).tolist() for _ in range(batch))))
        for _ in range(400)
    ]
    per_expert = (model.parameters - model.active) / (model.experts - model.routed)
    expected = model.active - model.routed * per_expert + np.mean(touched) * per_expert
    assert model.weights_read(np.array([float(batch)]))[0] == pytest.approx(expected, rel=0.01)


def test_decode_is_bound_by_memory_first_and_by_products_in_the_end() -> None:
    costs = engine_costs("H20", "qwen2.5-7b", 1, 256)
    read = 2 * 7.62e9 / (4.0e12 * CONSTANTS.memory_efficiency)
    multiply = 2 * 7.62e9 * 256 / (148e12 * CONSTANTS.decode_efficiency)
    assert costs.base[1] == pytest.approx(CONSTANTS.host_seconds + read)
    assert costs.base[256] == pytest.approx(CONSTANTS.host_seconds + multiply)
    assert multiply > read


def test_trainers_share_the_operations_and_pay_for_forward_passes() -> None:
    bare, two = trainer_costs("H100", "qwen3-8b", 8, 0), trainer_costs("H100", "qwen3-8b", 8, 2)
    assert two.per_token / bare.per_token == pytest.approx(10 / 6)
    assert trainer_costs("H100", "qwen3-8b", 16, 0).per_token == pytest.approx(bare.per_token / 2)
    assert bare.per_token == pytest.approx(6 * 8.19e9 / (8 * 989e12 * CONSTANTS.trainer_mfu_dense))


def test_a_transfer_brings_each_gpu_its_shard() -> None:
    one, eight = sync_costs("qwen3-8b", 1, True), sync_costs("qwen3-8b", 8, True)
    assert one.transfer == pytest.approx(2 * 8.19e9 / CONSTANTS.transfer_bytes_per_second)
    assert eight.transfer == pytest.approx(one.transfer / 8)


def test_slots_are_what_the_cache_holds_and_what_does_not_fit_names_what_would() -> None:
    room = 80e9 * CONSTANTS.cache_share - 2 * 8.19e9
    assert slots("H100", "qwen3-8b", 1, 10_000) == math.floor(room / (147_456 * 10_000))
    assert slots("H100", "qwen3-8b", 1, 10) == CONSTANTS.most_sequences
    with pytest.raises(ConfigError, match="tensor_parallel = 7"):
        slots("H100", "qwen3-235b-a22b", 4, 2000)
    assert slots("H100", "qwen3-235b-a22b", 7, 2000) > 0


def test_unknown_names_are_guessed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'H100'"):
        engine_costs("h100", "qwen3-8b", 1, 8)
    with pytest.raises(UnknownNameError, match="qwen3-8b"):
        engine_costs("H100", "qwen-3-8b", 1, 8)


def test_sizes_are_plausible() -> None:
    for model in MODELS.values():
        assert 0 < model.active <= model.parameters
        assert (model.experts == 1) == (model.active == model.parameters)
    for gpu in GPUS.values():
        assert gpu.flops > gpu.bandwidth > gpu.memory
