"""Tokens per second of the hook against vLLM's own log-probs and against none, in the same engine.

    python bench/real/generator_speed.py [--size 0.3M] [--vocabulary 64] [--rounds 12] [--json out.json]

Arms take turns within a round, in an order that rotates, so that a slow second of the machine hits all of them; ratios
are taken within rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy.stats import t as student
from setup_engine import SIZES, machine, make_model, spread

REQUESTS, TOKENS = 64, 64
ARMS = {"no log-probs": None, "stock, 2 log-probs": 2, "hook": 3}
_NAMES = itertools.count()


async def throughput(engine: Any, columns: int | None) -> float:
    """Return tokens per second of one batch."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    parameters = SamplingParams(
        max_tokens=TOKENS,
        ignore_eos=True,
        logprobs=columns,
        flat_logprobs=columns is not None,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )

    async def request(place: int) -> int:
        count = 0
        async for output in engine.generate({"prompt_token_ids": [1, 2, place]}, parameters, f"b{next(_NAMES)}"):
            count = len(output.outputs[0].token_ids)
        return count

    start = time.perf_counter()
    tokens = sum(await asyncio.gather(*(request(place) for place in range(REQUESTS))))
    return tokens / (time.perf_counter() - start)


async def wrapped(generator: Any) -> float:
    """Return tokens per second of the same batch through `Generator.generate`, records and checks included."""
    from entr_lab.real.records import SamplingSpec

    spec = SamplingSpec(max_tokens=TOKENS)
    start = time.perf_counter()
    found = await asyncio.gather(*(generator.generate([1, 2, place], spec) for place in range(REQUESTS)))
    return sum(len(completion.token_ids) for (completion,) in found) / (time.perf_counter() - start)


async def measure(size: str, vocabulary: int, rounds: int) -> dict[str, list[float]]:
    """Return tokens per second of every arm in every round, and the seconds that the engine took to start."""
    from entr_lab.real.engine_settings import EngineSettings
    from entr_lab.real.generator import Generator
    from entr_lab.real.weight_transfer import SharedMemorySender

    found: dict[str, list[float]] = {name: [] for name in [*ARMS, "hook, whole record"]}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), size, vocabulary)
        start = time.perf_counter()
        generator = await Generator.start(EngineSettings(model=folder, dtype="float32"))
        found["start_s"] = [time.perf_counter() - start]
    sender = SharedMemorySender()
    await generator.update_weights(sender.publish(model.state_dict(), 0), True)
    names = [name for name in found if name != "start_s"]
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            speed = await (throughput(generator.engine, ARMS[name]) if name in ARMS else wrapped(generator))
            if turn:  # the first round warms up
                found[name].append(speed)
    await generator.shutdown()
    sender.close()
    return found


def ratio(over: list[float], under: list[float]) -> tuple[float, float]:
    """Return the geometric mean of paired ratios and the half-width of its 95 % interval, as factors."""
    logs = [math.log(a / b) for a, b in zip(over, under, strict=True)]
    half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.fmean(logs)), math.exp(half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="0.3M")
    parser.add_argument("--vocabulary", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = asyncio.run(measure(options.size, options.vocabulary, options.rounds))
    start = found.pop("start_s")[0]
    print(f"{options.size}, vocabulary {options.vocabulary}: engine started in {start:.1f} s")
    for name, values in found.items():
        mean, factor = ratio(values, found["no log-probs"])
        print(f"  {name:20} {spread(values)['median']:9.0f} tok/s   {mean:.3f} (×/÷ {factor:.3f}) of no log-probs")
    if options.json:
        record = {"machine": machine(), "start_s": start, **vars(options), "tokens_per_s": found}
        options.json.write_text(json.dumps(record, indent=2, default=str) + "\n")


if __name__ == "__main__":
    main()
