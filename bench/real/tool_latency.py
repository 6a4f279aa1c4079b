"""What asynchrony gains where tools are slow, measured, beside what `entr-lab plan` predicts from measured inputs.

    python bench/real/tool_latency.py [--batches 24] [--seed 0]

The calculator environment (two tool calls a rollout), sync against async(4, 2), with tool calls of 0, 1 and 4 times the
time that a rollout takes to generate in the sync run without latency. The plan's inputs are measured here too: the
engine's time a token at two batch sizes, by itself; lengths, turns, the trainer's step and the weight update from the
sync run without latency; all rollouts have the calculator's three turns. No input is fitted to a wall-clock
that is predicted. Six runs: about twelve minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from train_runs import columns, share_seconds, train, write_result

from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.time_level import simulate
from entr_lab.traces.writer import read_trace

FACTORS = (0, 1, 4)
MODES = {
    "sync": {"asynchrony.mode": "sync"},
    "async": {"asynchrony.mode": "async", "asynchrony.max_inter": 4, "asynchrony.max_intra": 2},
}
SETTINGS = {
    "environment.name": "calculator",
    "environment.tool_timeout": 600.0,
    "checkpoint.every": 0,
    "log.tensorboard": False,
    "log.traces": True,
}
SLOTS = 64
"""Rollouts under way, those that wait for a tool included; the pipeline counts in groups of 8."""
WARM_UP = 3
"""Batches that are left out at the beginning of every run."""
BATCH_SIZES = (8, SLOTS)
PLAN_STEPS, PLAN_SEEDS = 60, 3


async def seconds_per_step(requests: int = 40, tokens: int = 64) -> dict[int, float]:
    """Return the engine's seconds for one token of every sequence, by the number of sequences that run."""
    from entr_lab.real.config_io import load_config
    from entr_lab.real.generator import Generator
    from entr_lab.real.parts import engine_settings
    from entr_lab.real.records import SamplingSpec
    from entr_lab.real.run import prepare_model
    from entr_lab.real.weight_transfer import SharedMemorySender

    config = load_config(None, ["environment.name=calculator"])
    model, facts = prepare_model(config)
    from safetensors.torch import load_file

    generator = await Generator.start(engine_settings(config, model, facts, 0))
    sender = SharedMemorySender()
    await generator.update_weights(sender.publish(load_file(Path(model) / "model.safetensors"), 0), True)
    spec, found = SamplingSpec(max_tokens=tokens), {}
    for size in BATCH_SIZES:
        await asyncio.gather(*(generator.generate([1, 2, 3], spec) for _ in range(size)))
        start = time.perf_counter()
        rounds = max(2, requests // size)
        for _ in range(rounds):
            await asyncio.gather(*(generator.generate([1, 2, 3], spec) for _ in range(size)))
        found[size] = (time.perf_counter() - start) / (rounds * tokens)
    await generator.shutdown()
    sender.close()
    return found


def run(folder: Path, mode: str, latency: float, batches: int, seed: int) -> dict[str, Any]:
    """Make one run; return seconds a batch and what a plan needs to know."""
    train(folder, {**SETTINGS, **MODES[mode], "environment.tool_latency": latency}, batches=batches, seed=seed)
    metrics = columns(folder / "metrics.jsonl")
    seconds = metrics["seconds"]
    return {
        "seconds_per_batch": float((seconds[-1] - seconds[WARM_UP - 1]) / (len(seconds) - WARM_UP)),
        "rollout_seconds": rollout_seconds(folder / "events.jsonl"),
        "trainer_seconds": share_seconds(metrics, "trainer", "trains"),
        "update_seconds": share_seconds(metrics, "generator-0", "loads"),
        "staleness_mean": float(np.nanmean(metrics["staleness_mean"])),
    }


def rollout_seconds(log: Path) -> float:
    """Return the mean time from dispatch to completion of a rollout."""
    begun: dict[int, float] = {}
    taken: list[float] = []
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "dispatch":
            begun |= dict.fromkeys(event["answer"], event["now"])
        elif event["kind"] == "complete":
            taken.append(event["now"] - begun[event["ticket"]])
    return float(np.mean(taken))


def shape(trace: Path) -> dict[str, Any]:
    """Return lengths and turns of the rollouts of a trace."""
    tokens, sequences = read_trace(trace)
    sampled = np.array(sequences["n_trainable"].to_pylist(), float)
    context = np.array(sequences["n_tokens"].to_pylist(), float) - sampled
    turns = tokens.group_by("sequence").aggregate([("turn", "max")])["turn_max"].to_numpy() + 1
    return {
        "lengths": sampled,
        "prompt": int(np.mean([len(ids) for ids in sequences["prompt_ids"].to_pylist()])),
        "turns": float(np.mean(turns)),
        "answer_tokens": round(float(context.sum() / max(1.0, (turns - 1).sum()))),
    }


def predict(mode: str, latency: float, base: dict[str, Any], steps: dict[int, float], work: dict[str, Any]) -> float:
    """Return the plan's seconds a batch."""
    small, large = BATCH_SIZES
    per_sequence = max(0.0, (steps[large] - steps[small]) / (large - small))
    trained = 64 * (float(np.mean(work["lengths"])) + work["prompt"])
    plan = Plan.model_validate(
        {
            "name": f"{mode}-{latency:g}",
            "gpus": 2,
            "generator_gpus": 1,
            "costs": {
                "decode_fixed": max(1e-6, steps[small] - small * per_sequence),
                "decode_per_sequence": per_sequence,
                "slots": SLOTS,
                "trainer_fixed": 0.0,
                "trainer_per_token": base["trainer_seconds"] / trained,
                "transfer": base["update_seconds"],
            },
            "lengths": {
                "kind": "empirical",
                "values": tuple(np.quantile(work["lengths"], np.linspace(0.005, 0.995, 100))),
                "cap": 64,
                "prompt": work["prompt"],
            },
            "tools": {
                "turns": round(work["turns"]),
                "max_turns": round(work["turns"]),
                "seconds": latency,
                "seconds_cv": 0.0,
                "tokens": work["answer_tokens"],
            },
            "batch": {"groups": 8, "rollouts": 8},
            "protocol": {"mode": "split-sync"}
            if mode == "sync"
            else {"mode": "async", "max_inter": 4, "max_intra": 2, "max_in_flight": SLOTS // 8, "recompute_kv": False},
        }
    )
    return float(np.mean([simulate(plan, steps=PLAN_STEPS, seed=s).seconds_per_step for s in range(PLAN_SEEDS)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = asyncio.run(seconds_per_step())
    rows = []
    with tempfile.TemporaryDirectory() as root:

        def measured(mode: str, latency: float) -> dict[str, Any]:
            return run(Path(root) / f"{mode}-{latency:.3f}", mode, latency, options.batches, options.seed)

        base = measured("sync", 0.0)
        work = shape(Path(root) / "sync-0.000" / "trace")
        for factor in FACTORS:
            latency = factor * base["rollout_seconds"]
            row: dict[str, Any] = {"factor": factor, "tool_seconds": latency}
            for mode in MODES:
                row[mode] = base if (mode, factor) == ("sync", 0) else measured(mode, latency)
                row[mode]["predicted_seconds_per_batch"] = predict(mode, latency, base, steps, work)
            row["speed_up"] = row["sync"]["seconds_per_batch"] / row["async"]["seconds_per_batch"]
            predicted = [row[mode]["predicted_seconds_per_batch"] for mode in MODES]
            row["predicted_speed_up"] = predicted[0] / predicted[1]
            print(
                f"tools of {latency:.2f} s ({factor} ×): sync {row['sync']['seconds_per_batch']:.2f} s a batch "
                f"(predicted {predicted[0]:.2f}), async {row['async']['seconds_per_batch']:.2f} ({predicted[1]:.2f}); "
                f"speed-up {row['speed_up']:.2f}, predicted {row['predicted_speed_up']:.2f}",
                flush=True,
            )
            rows.append(row)
    inputs = {"seconds_per_step": steps, **{k: v for k, v in work.items() if k != "lengths"}}
    inputs["tokens_mean"] = float(np.mean(work["lengths"]))
    result = {"settings": SETTINGS, "modes": MODES, "batches": options.batches, "inputs": inputs, "rows": rows}
    print(write_result(__file__, result, options.seed))


if __name__ == "__main__":
    main()
