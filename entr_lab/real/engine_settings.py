"""How one engine is started: plain numbers, and what they become for vLLM.

Light to import. The environment variables have to be set before vllm is imported, so an actor gets them from its
runtime environment and a plain process sets them in `Generator.start`. Ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from entr_lab.errors import ConfigError, check_choice, check_range

__all__ = ["CANARY_SEATS", "CANARY_TOLERANCE", "EngineSettings"]

CANARY_TOLERANCE: Final = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}
"""Mean difference, in nats, between engine and trainer at equal weights that the canaries accept (see `proof`), by the
engine's dtype; sharp models in float32 were measured at 3e-5, trained and perturbed ones in bfloat16 at up to 0.04."""

CANARY_SEATS: Final = 4
"""Canaries of an update in flight, and seats that the engine has for them beside its rollouts: a canary that waited for
a rollout to end would hold back all rollouts that wait for its proof."""

_EXTENSION: Final = "entr_lab.real.engine_hook.WorkerExtension"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One engine.

    Args:
        model: folder or hub name of a Hugging Face causal language model.
        device: `cpu` or `cuda`.
        dtype: `float32`, `bfloat16` or `float16`.
        max_model_len: longest prompt and completion together.
        max_sequences: most rollouts in flight; with no more, a canary never waits for a seat.
        kv_cache_mib: key-value cache on CPU; on a GPU the cache fills `gpu_memory_utilization`.
        gpu_memory_utilization: share of a GPU's memory that the engine may take.
        tensor_parallel: GPUs of one engine.
        prefix_caching: reuse the cache of equal prompt beginnings; entries are kept apart by weight version.
        cuda_graphs: capture CUDA graphs; off on CPU always, where they gain nothing.
        seed: of the engine's own sampling stream.
        own_cpu: keep the core of a CPU engine on a CPU that nothing else of its actor runs on; see `EngineCpu`.
        transfer: how weights arrive: `shm` (a file in shared memory), `nccl` or `ipc` (vLLM's own, GPU only).
        canary_tolerance: nats; None takes the dtype's own of `CANARY_TOLERANCE`.
        trust_remote_code: run Python code that comes with the model.
        host: address that the engine's own sockets bind to; loopback unless an engine spans machines.
        worker_extension: class that vLLM mixes into its workers; must install the hook.

    Raises:
        ConfigError: a combination is impossible, or a number outside its interval.
    """

    model: str
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    max_model_len: int = 512
    max_sequences: int = 64
    kv_cache_mib: int = 64
    gpu_memory_utilization: float = 0.85
    tensor_parallel: int = 1
    prefix_caching: bool = False
    cuda_graphs: bool = False
    seed: int = 0
    own_cpu: bool = True
    transfer: Literal["shm", "nccl", "ipc"] = "shm"
    canary_tolerance: float | None = None
    trust_remote_code: bool = False
    host: str = "127.0.0.1"
    worker_extension: str = _EXTENSION

    def __post_init__(self) -> None:
        check_choice("device", self.device, ("cpu", "cuda"))
        check_choice("dtype", self.dtype, CANARY_TOLERANCE)
        check_choice("transfer", self.transfer, ("shm", "nccl", "ipc"))
        for name in ("max_model_len", "max_sequences", "kv_cache_mib", "tensor_parallel"):
            check_range(name, getattr(self, name), low=1)
        check_range("gpu_memory_utilization", self.gpu_memory_utilization, low=0, low_open=True, high=1)
        if self.device == "cpu" and self.transfer != "shm":
            raise ConfigError(f"transfer {self.transfer!r} needs GPUs; set it to 'shm' on CPU.")
        if self.device == "cpu" and self.tensor_parallel > 1:
            raise ConfigError(f"tensor_parallel is {self.tensor_parallel} on CPU; set it to 1 and start more engines.")

    @property
    def tolerance(self) -> float:
        """Nats that the canary accepts."""
        return CANARY_TOLERANCE[self.dtype] if self.canary_tolerance is None else self.canary_tolerance

    def environment(self) -> dict[str, str]:
        """Return the environment variables that must be set before vllm is imported."""
        common = {
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_HOST_IP": self.host,
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.device == "cuda":
            return common
        # One thread: two OpenMP pools that share cores stall each other. No dynamo: it compiles, for log-probs only,
        # a function that the hook does not call. One process less: the executor runs inside the engine's core.
        return common | {
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
        }

    def engine_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of vLLM's `AsyncEngineArgs`, without the transfer's configuration object."""
        arguments: dict[str, Any] = {
            "model": self.model,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_sequences + CANARY_SEATS,
            "tensor_parallel_size": self.tensor_parallel,
            "enable_prefix_caching": self.prefix_caching,
            "enforce_eager": self.device == "cpu" or not self.cuda_graphs,
            "seed": self.seed,
            "trust_remote_code": self.trust_remote_code,
            "worker_extension_cls": self.worker_extension,
            "logprobs_mode": "processed_logprobs",
            "scheduling_policy": "priority",  # so that a canary goes before waiting requests
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
        }
        if self.device == "cpu":
            return arguments | {"kv_cache_memory_bytes": self.kv_cache_mib << 20}
        return arguments | {"gpu_memory_utilization": self.gpu_memory_utilization}
