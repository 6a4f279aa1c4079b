"""Plans with a name: the paper's tasks, published configurations of verl and NeMo-RL, a two-core laptop.

Each says what its source gives and what is assumed here. `published` numbers are their owners', never ours, and no
input is chosen so that a prediction meets them; docs/plan.md lists which predictions miss.
"""

from __future__ import annotations

from typing import Any

from entr_lab.errors import check_choice
from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.plan_schema import Plan

__all__ = ["PRESETS", "preset"]

_PAPER = "arXiv 2607.22186"
_VERL = "verl docs/advance/fully_async.md"
_NEMO = "NeMo-RL docs/about/performance-summary.md, v0.6"
_UNKNOWN = "GPUs, their split (half), rollouts per prompt, spread of lengths, prompt length, efficiencies"


def _paper(inter: int, intra: int, **plan: Any) -> dict[str, Any]:
    published = {"inter": inter, "intra": intra, "assumed": _UNKNOWN} | plan.pop("published")
    protocol = {"mode": "async", "max_inter": inter, "max_intra": intra}
    return {"protocol": protocol, "published": published} | plan


def _verl(gpus: int, seconds: tuple[float, float, float, float], speedup: tuple[float, float]) -> dict[str, Any]:
    """A row of verl's 7B table: sync seconds (step, generation, log-probs + update), async step, span of the ratio."""
    sync, generation, training, overlapped = seconds
    return {
        "gpus": gpus,
        "generator_gpus": gpus // 2,
        "hardware": {"gpu": "H20", "model": "qwen2.5-7b"},
        "lengths": {"mean": 2300, "cv": 1.2, "cap": 28_672, "prompt": 150},
        "batch": {"groups": 128, "rollouts": 16},
        # staleness_threshold 0.5 of the 512 groups between two weight updates, as a limit on live groups
        "protocol": {"mode": "async", "max_inter": 8, "max_intra": 8, "sync_every": 4, "buffer_groups": 768},
        "baseline": {"groups": 512, "forward_passes": 1},
        "published": {
            "source": _VERL,
            "given": "chips, model, split, batch, updates per transfer, staleness threshold, length cap, sync phases",
            "assumed": "mean and spread of lengths, prompt length, host and chip efficiencies",
            "groups": 512,
            "sync_seconds": sync,
            "sync_generation_seconds": generation,
            "sync_training_seconds": training,
            "async_seconds": overlapped,
            "speedup": speedup[0],
            "speedup_high": speedup[1],
        },
    }


def _nemo(
    gpus: int, gpu: str, model: str, tp: tuple[int, int], length: tuple[int, int], step: tuple[float, float]
) -> dict[str, Any]:
    """A row of NeMo-RL: tensor parallelism and step seconds as (on policy, 1-step off); length as (mean, cap)."""
    rollouts = 32
    groups = (2048 if length[1] == 4096 else 512) // rollouts
    return {
        "gpus": gpus,
        "generator_gpus": gpus // 2,
        "tensor_parallel": tp[1],
        "hardware": {"gpu": gpu, "model": model, "forward_passes": 2},
        "lengths": {"mean": 1.15 * length[0], "cv": 0.5, "cap": length[1] - 150, "prompt": 150},
        "batch": {"groups": groups, "rollouts": rollouts},
        "protocol": {"mode": "async", "max_inter": 1, "max_intra": 1},
        "baseline": {"tensor_parallel": tp[0]},
        "published": {
            "source": _NEMO,
            "given": "chips, model, GPUs, split, batch, mean and cap of lengths, tensor parallelism, age limit",
            "assumed": "spread of lengths, prompt length, forward passes, host and chip efficiencies",
            "sync_seconds": step[0],
            "async_seconds": step[1],
            "speedup": step[0] / step[1],
        },
    }


PRESETS: dict[str, dict[str, Any]] = {
    "dapo-math": _paper(
        10,
        8,
        gpus=64,
        generator_gpus=32,
        hardware={"gpu": "H800", "model": "qwen2.5-7b"},
        # 1356.47 s × 82.56 tokens/s/GPU × 64 GPUs / (128 × 16) trajectories = 3,500 tokens
        lengths={"mean": 3500, "cv": 1.2, "cap": 20_480, "prompt": 150},
        batch={"groups": 128, "rollouts": 16},
        baseline={"forward_passes": 1},
        published={
            "source": f"{_PAPER}, Table 4",
            "given": "chip, model, batch of 128 prompts, tokens per GPU and step, staleness",
            "sync_seconds": 1356.47,
            "async_seconds": 514.84,
            "speedup": 2.6,
        },
    ),
    "search-r1": _paper(
        9,
        2,
        gpus=16,
        generator_gpus=8,
        hardware={"gpu": "H800", "model": "qwen3-8b"},
        lengths={"mean": 900, "cv": 0.8, "cap": 4096, "prompt": 300},
        tools={"turns": 3.0, "max_turns": 6, "seconds": 1.0, "tokens": 600},
        batch={"groups": 128, "rollouts": 8},
        published={"source": f"{_PAPER}, section 5.2", "given": "chip, model, staleness"},
    ),
    "browsecomp-plus": _paper(
        1,
        5,
        gpus=64,
        generator_gpus=32,
        tensor_parallel=4,
        hardware={"gpu": "H800", "model": "qwen3-30b-a3b"},
        lengths={"mean": 15_500, "cv": 0.7, "cap": 40_960, "prompt": 500},
        tools={"turns": 14.3, "max_turns": 40, "seconds": 2.0, "tokens": 1000},
        batch={"groups": 32, "rollouts": 8},
        published={
            "source": f"{_PAPER}, Figure 8 (read off: 1.4e3 s against 0.5e3 s a step)",
            "given": "chip, model, mean turns and tokens of a response, staleness",
            "sync_seconds": 1400,
            "async_seconds": 500,
            "speedup": 2.8,
        },
    ),
    "gsm8k-tools": _paper(
        13,
        5,
        gpus=16,
        generator_gpus=8,
        hardware={"gpu": "H800", "model": "qwen2.5-7b"},
        lengths={"mean": 400, "cv": 0.6, "cap": 2048, "prompt": 200},
        tools={"turns": 2.5, "max_turns": 5, "seconds": 0.2, "tokens": 60},
        batch={"groups": 128, "rollouts": 8},
        published={"source": f"{_PAPER}, section 5.2", "given": "chip, model, staleness"},
    ),
    "verl-fully-async": _verl(128, (356.30, 177.85, 53.92 + 113.81, 150.63), (2.35, 2.67)),
    "verl-fully-async-64": _verl(64, (365.28, 150.72, 70.26 + 133.41, 189.26), (1.83, 2.09)),
    "verl-fully-async-32": _verl(32, (790.10, 357.41, 107.71 + 269.80, 294.77), (1.70, 2.66)),
    "verl-fully-async-30b": {
        "gpus": 128,
        "generator_gpus": 96,
        "tensor_parallel": 4,
        "hardware": {"gpu": "H20", "model": "qwen3-30b-a3b", "forward_passes": 1},
        "lengths": {"mean": 2500, "cv": 0.8, "cap": 8192, "prompt": 150},
        "batch": {"groups": 128, "rollouts": 16},
        "protocol": {"mode": "async", "max_inter": 8, "max_intra": 8, "sync_every": 4, "buffer_groups": 768},
        "baseline": {"groups": 512, "forward_passes": 2},
        "published": {
            "source": f"{_VERL}, 30B",
            "given": "chips, model, split, batch, updates per transfer, staleness threshold, length cap, sync phases",
            "assumed": "mean and spread of lengths, tensor parallelism, host and chip efficiencies",
            "groups": 512,
            "sync_seconds": 497.89,
            "sync_generation_seconds": 348.05,
            "sync_training_seconds": 28.73 + 20.86 + 86.27,
            "async_seconds": 282.75,
            "speedup": 1.72,
            "speedup_high": 2.01,
        },
    },
    "verl-fully-async-tools": {
        "gpus": 32,
        "generator_gpus": 16,
        "hardware": {"gpu": "H20", "model": "qwen2.5-7b"},
        "lengths": {"mean": 2500, "cv": 0.8, "cap": 16_384, "prompt": 300},
        "tools": {"turns": 4.0, "max_turns": 16, "seconds": 2.0, "tokens": 150},
        "batch": {"groups": 16, "rollouts": 16},
        "protocol": {"mode": "async", "max_inter": 8, "max_intra": 8, "sync_every": 4, "buffer_groups": 128},
        "baseline": {"groups": 64, "forward_passes": 1},
        "published": {
            "source": f"{_VERL}, multi-turn",
            "given": "chips, model, split, batch, updates per transfer, staleness threshold, most turns, sync phases",
            "assumed": "lengths, turns, tool latency, rollouts per prompt, host and chip efficiencies",
            "groups": 64,
            "sync_seconds": 375.47,
            "sync_generation_seconds": 228.03,
            "sync_training_seconds": 35.19 + 111.84,
            "async_seconds": 221.36,
            "speedup": 1.55,
            "speedup_high": 1.60,
        },
    },
    "verl-one-step-off": {
        "gpus": 16,
        "generator_gpus": 4,
        "hardware": {"gpu": "H20", "model": "qwen2.5-7b", "forward_passes": 1},
        "lengths": {"mean": 2300, "cv": 1.2, "cap": 20_480, "prompt": 150},
        "batch": {"groups": 512, "rollouts": 16},
        "protocol": {"mode": "one-step", "max_in_flight": 512, "buffer_groups": 512},
        "published": {
            "source": "verl docs/advance/one_step_off.md, FSDP2",
            "given": "chips, model, split (4 generators, 12 for training), length cap, sync phases",
            "assumed": "batch, mean and spread of lengths, host and chip efficiencies",
            "sync_seconds": 749,
            "sync_generation_seconds": 321,
            "sync_training_seconds": 88 + 286,
            "async_seconds": 520,
            "speedup": 1.23,
        },
    },
    "nemo-rl-qwen3-30b-h100": _nemo(32, "H100", "qwen3-30b-a3b", (2, 2), (3203, 4096), (192, 152)),
    "nemo-rl-qwen3-30b-gb200": _nemo(16, "GB200", "qwen3-30b-a3b", (1, 1), (3199, 4096), (221, 301)),
    "nemo-rl-qwen3-235b-h100": _nemo(256, "H100", "qwen3-235b-a22b", (16, 8), (5713, 8192), (312, 231)),
    "nemo-rl-qwen3-235b-gb200": _nemo(128, "GB200", "qwen3-235b-a22b", (8, 8), (5693, 8192), (345, 278)),
    "nemo-rl-deepseek-v3-h100": _nemo(512, "H100", "deepseek-v3", (32, 32), (701, 1536), (111, 64.1)),
    "nemo-rl-deepseek-v3-gb200": _nemo(256, "GB200", "deepseek-v3", (32, 16), (700, 1536), (98.7, 61.7)),
    "laptop": {
        "gpus": 2,
        "generator_gpus": 1,
        # vLLM alone on one core: 64 sequences at 21,000 tokens/s; the trainer at 4,096 and at 192 tokens a step
        "costs": {
            "decode_fixed": 1.0e-3,
            "decode_per_sequence": 32e-6,
            "prefill_per_token": 5e-6,
            "slots": 128,
            "trainer_fixed": 28e-3,
            "trainer_per_token": 53e-6,
            "transfer": 15e-3,
        },
        "lengths": {"kind": "fixed", "mean": 64, "cap": 64, "prompt": 8},
        "batch": {"groups": 8, "rollouts": 8},
        "protocol": {"mode": "async", "max_inter": 3, "max_intra": 3, "max_in_flight": 16},
        "published": {
            "source": "entr-lab's own run: vLLM and torch on a 2-core CPU machine, 0.3 M parameters",
            "given": "batch, length, engine alone, trainer in the run, transfer, limit in flight",
            "assumed": "split of a decode step into fixed and per-sequence parts",
            "async_seconds": 60 / 161,
            "inter": 3,
            "intra": 0,
        },
    },
}


def preset(name: str) -> Plan:
    """Return the plan of that name.

    Raises:
        UnknownNameError: there is none; suggests the nearest.
    """
    return parse_plan({"name": name} | PRESETS[check_choice("preset", name, PRESETS)])
