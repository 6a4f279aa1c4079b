"""From a GPU and a model to the costs of the service model, with general constants that are set once.

The model is a roofline: a decode step reads the weights (of a mixture of experts, only those that the batch routes to)
and the cache from memory, or is bound by its matrix products, whichever takes longer, plus a fixed time for the host
and, over several GPUs, the latency of the reductions. A trainer step does 6 floating-point operations per active
parameter and token (2 for a forward pass). Sizes and peaks are the vendors' and the model cards'; the efficiencies in
`Constants` are assumptions of ours, the same for every plan: nothing is fitted to a published speed-up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from entr_lab.errors import ConfigError, check_choice, check_range
from entr_lab.sim.time_costs import EngineCosts, SyncCosts, TrainerCosts

__all__ = [
    "CONSTANTS",
    "GPUS",
    "MODELS",
    "Constants",
    "Gpu",
    "Model",
    "engine_costs",
    "slots",
    "sync_costs",
    "trainer_costs",
]


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peaks of one accelerator: dense bfloat16 operations per second, bytes per second, bytes."""

    flops: float
    bandwidth: float
    memory: float


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes: parameters in all and per token, layers, bytes of cache per token, experts and how many route."""

    parameters: float
    active: float
    layers: int
    cache_bytes: float
    experts: int = 1
    routed: int = 1

    def weights_read(self, batch: np.ndarray) -> np.ndarray:
        """Return the expected parameters that a decode step over `batch` sequences touches, `[...]` like `batch`.

        With E experts of which k route, independently and evenly, a batch of b leaves an expert untouched with
        probability (1 − k/E)^b.
        """
        if self.experts == 1:
            return np.full(batch.shape, self.parameters)
        share = self.routed / self.experts
        expert = (self.parameters - self.active) / (1.0 - share)
        return (self.parameters - expert) + expert * (1.0 - (1.0 - share) ** batch)


@dataclass(frozen=True, slots=True)
class Constants:
    """Efficiencies and overheads assumed for every plan (ours, not measured on the systems that they stand for)."""

    memory_efficiency: float = 0.6
    decode_efficiency: float = 0.5
    host_seconds: float = 5e-3
    """Fixed time of a decode step: scheduling, sampling, launches."""
    reduction_seconds: float = 15e-6
    """Latency of one tensor-parallel reduction; two a layer."""
    prefill_efficiency: float = 0.5
    trainer_mfu_dense: float = 0.35
    trainer_mfu_experts: float = 0.15
    trainer_fixed_seconds: float = 3.0
    transfer_bytes_per_second: float = 5e9
    """Into each GPU of a generator, which receives its shard of the weights."""
    cache_share: float = 0.9
    """Share of the GPU's memory that weights and cache may fill."""
    most_sequences: int = 256
    """Most sequences that an engine runs at once (a common default)."""


CONSTANTS = Constants()

GPUS: dict[str, Gpu] = {
    "A100": Gpu(312e12, 2.0e12, 80e9),
    "GB200": Gpu(2500e12, 8.0e12, 186e9),
    "H100": Gpu(989e12, 3.35e12, 80e9),
    "H20": Gpu(148e12, 4.0e12, 96e9),
    "H800": Gpu(989e12, 3.35e12, 80e9),
}

MODELS: dict[str, Model] = {
    "deepseek-v3": Model(671e9, 37e9, 61, 70_272, experts=256, routed=8),
    "llama3.1-8b": Model(8.03e9, 8.03e9, 32, 131_072),
    "qwen2.5-7b": Model(7.62e9, 7.62e9, 28, 57_344),
    "qwen3-8b": Model(8.19e9, 8.19e9, 36, 147_456),
    "qwen3-30b-a3b": Model(30.5e9, 3.3e9, 48, 98_304, experts=128, routed=8),
    "qwen3-235b-a22b": Model(235e9, 22e9, 94, 192_512, experts=128, routed=8),
}


def slots(gpu: str, model: str, tensor_parallel: int, context: float) -> int:
    """Return how many sequences of mean context `context` (tokens) fit in the cache of one generator.

    Raises:
        ConfigError: the weights alone do not fit.
    """
    card, net = _look_up(gpu, model)
    room = tensor_parallel * card.memory * CONSTANTS.cache_share - 2.0 * net.parameters
    if room < net.cache_bytes * context:
        least = int(np.ceil((2.0 * net.parameters + net.cache_bytes * context) / (card.memory * CONSTANTS.cache_share)))
        raise ConfigError(
            f"{model} does not fit on {tensor_parallel} × {gpu} with one sequence of {context:.0f} tokens; "
            f"the nearest plan that can run has tensor_parallel = {least}."
        )
    return int(min(CONSTANTS.most_sequences, room // (net.cache_bytes * context)))


def engine_costs(gpu: str, model: str, tensor_parallel: int, running: int) -> EngineCosts:
    """Return the costs of a generator of `tensor_parallel` GPUs that runs at most `running` sequences."""
    card, net = _look_up(gpu, model)
    check_range("tensor_parallel", tensor_parallel, low=1)
    batch = np.arange(running + 1)
    memory_rate = tensor_parallel * card.bandwidth * CONSTANTS.memory_efficiency
    product_rate = tensor_parallel * card.flops * CONSTANTS.decode_efficiency
    reductions = 2 * net.layers * CONSTANTS.reduction_seconds if tensor_parallel > 1 else 0.0
    read = 2.0 * net.weights_read(batch) / memory_rate
    multiply = 2.0 * net.active * batch / product_rate
    base = CONSTANTS.host_seconds + reductions + np.maximum(read, multiply)
    prefill = 2.0 * net.active / (tensor_parallel * card.flops * CONSTANTS.prefill_efficiency)
    return EngineCosts(tuple(base.tolist()), kv=net.cache_bytes / memory_rate, prefill=prefill)


def trainer_costs(gpu: str, model: str, gpus: int, forward_passes: int) -> TrainerCosts:
    """Return the costs of a trainer on `gpus` GPUs; `forward_passes` counts old log-probs and references."""
    card, net = _look_up(gpu, model)
    check_range("the number of trainer GPUs", gpus, low=1)
    mfu = CONSTANTS.trainer_mfu_dense if net.experts == 1 else CONSTANTS.trainer_mfu_experts
    operations = (6.0 + 2.0 * forward_passes) * net.active
    return TrainerCosts(CONSTANTS.trainer_fixed_seconds, operations / (gpus * card.flops * mfu))


def sync_costs(model: str, tensor_parallel: int, recompute_kv: bool) -> SyncCosts:
    """Return the costs of a weight update of `model`, in bfloat16, to generators of `tensor_parallel` GPUs."""
    share = 2.0 * _model(model).parameters / tensor_parallel
    return SyncCosts(share / CONSTANTS.transfer_bytes_per_second, recompute_kv)


def _model(name: str) -> Model:
    return MODELS[check_choice("model", name, MODELS)]


def _look_up(gpu: str, model: str) -> tuple[Gpu, Model]:
    return GPUS[check_choice("GPU", gpu, GPUS)], _model(model)
