from __future__ import annotations

import pytest

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.real.engine_settings import CANARY_SEATS, CANARY_TOLERANCE, EngineSettings


def test_what_an_exact_record_needs_is_always_on() -> None:
    arguments = EngineSettings(model="m").engine_arguments()
    assert arguments["logprobs_mode"] == "processed_logprobs"
    assert arguments["worker_extension_cls"] == "entr_lab.real.engine_hook.WorkerExtension"
    assert arguments["scheduling_policy"] == "priority"
    assert arguments["skip_tokenizer_init"] is True
    assert arguments["enable_prefix_caching"] is False
    assert arguments["trust_remote_code"] is False


def test_cpu_and_gpu_take_memory_by_their_own_measure() -> None:
    cpu = EngineSettings(model="m", kv_cache_mib=32).engine_arguments()
    assert cpu["kv_cache_memory_bytes"] == 32 << 20
    assert "gpu_memory_utilization" not in cpu
    assert cpu["enforce_eager"] is True
    gpu = EngineSettings(model="m", device="cuda", cuda_graphs=True, tensor_parallel=4, transfer="nccl")
    assert gpu.engine_arguments()["gpu_memory_utilization"] == 0.85
    assert gpu.engine_arguments()["tensor_parallel_size"] == 4
    assert gpu.engine_arguments()["enforce_eager"] is False
    assert "kv_cache_memory_bytes" not in gpu.engine_arguments()


def test_the_environment_binds_to_loopback_and_stays_on_one_thread() -> None:
    environment = EngineSettings(model="m").environment()
    assert environment["VLLM_HOST_IP"] == "127.0.0.1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"
    assert "OMP_NUM_THREADS" not in EngineSettings(model="m", device="cuda").environment()


def test_the_tolerance_follows_the_dtype_unless_set() -> None:
    assert EngineSettings(model="m", dtype="float32").tolerance == CANARY_TOLERANCE["float32"]
    assert EngineSettings(model="m", dtype="float32", canary_tolerance=0.5).tolerance == 0.5


def test_canaries_have_seats_of_their_own() -> None:
    arguments = EngineSettings(model="m", max_sequences=5).engine_arguments()
    assert arguments["max_num_seqs"] == 5 + CANARY_SEATS


def test_impossible_settings_say_why() -> None:
    with pytest.raises(ConfigError, match="'nccl' needs GPUs; set it to 'shm'"):
        EngineSettings(model="m", transfer="nccl")
    with pytest.raises(ConfigError, match="tensor_parallel is 2 on CPU"):
        EngineSettings(model="m", tensor_parallel=2)
    with pytest.raises(UnknownNameError, match="did you mean 'bfloat16'"):
        EngineSettings(model="m", dtype="bfloat61")  # type: ignore[arg-type]
    with pytest.raises(RangeError, match="max_sequences"):
        EngineSettings(model="m", max_sequences=0)
