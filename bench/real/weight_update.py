"""Time of one weight update in flight, by its parts: publish, check, pause to resume, proof.

    python bench/real/weight_update.py [--sizes 0.3M 3M 30M] [--updates 20] [--requests 32] [--json out.json]

Requests run all the time. The engine shares one thread with nothing; the trainer's part (publish, canary reference) is
measured in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from setup_engine import SIZES, machine, make_model, spread, timed

VOCABULARY = 64


async def measure(size: str, updates: int, requests: int) -> dict[str, Any]:
    """Return the parts of `updates` updates of a model of one size."""
    import torch

    from entr_lab.real.canary import canary_prompts, canary_reference, model_logits
    from entr_lab.real.engine_settings import CANARY_SEATS, EngineSettings
    from entr_lab.real.generator import Generator
    from entr_lab.real.records import SamplingSpec
    from entr_lab.real.weight_transfer import SharedMemorySender

    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), size, VOCABULARY)
        start = time.perf_counter()
        generator = await Generator.start(EngineSettings(model=folder, dtype="float32", max_model_len=1024))
        found: dict[str, Any] = {"start_s": time.perf_counter() - start}
    sender = SharedMemorySender()
    log: dict[str, list[float]] = {}
    for owner, name in ((generator.updates, "check"), (generator.updates, "exchange"), (generator, "_prove")):
        setattr(owner, name, timed(log, name.strip("_"), getattr(owner, name)))
    prompts = canary_prompts(VOCABULARY, count=CANARY_SEATS)  # as many as an update in flight is proved on
    running: set[asyncio.Task[Any]] = set()
    for version in range(updates + 1):
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.mul_(1 + 0.01 * torch.randn_like(tensor))
        start = time.perf_counter()
        reference = canary_reference(model_logits(model), prompts)
        published = time.perf_counter()
        manifest = sender.publish(model.state_dict(), version, reference)
        pushed = time.perf_counter()
        await generator.update_weights(manifest, False)
        done = time.perf_counter()
        sender.release(manifest)
        log.setdefault("canary_reference", []).append(1e3 * (published - start))
        log.setdefault("publish", []).append(1e3 * (pushed - published))
        log.setdefault("update_weights", []).append(1e3 * (done - pushed))
        running = {task for task in running if not task.done()}
        while len(running) < requests:
            call = generator.generate([1, 2, len(running)], SamplingSpec(max_tokens=1000))
            running.add(asyncio.create_task(call))
        await asyncio.sleep(0.2)
    await generator.abort()
    await asyncio.gather(*running)
    await generator.shutdown()
    sender.close()
    # The first update runs without requests in flight and warms everything up.
    found["parameters"] = sum(tensor.numel() for tensor in model.parameters())
    found["milliseconds"] = {name: spread(values[1:]) for name, values in log.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes: dict[str, Any] = {}
    result = {"machine": machine(), "updates": options.updates, "requests": options.requests, "sizes": sizes}
    for size in options.sizes:
        sizes[size] = found = asyncio.run(measure(size, options.updates, options.requests))
        print(f"{size}: {found['parameters']} parameters, engine started in {found['start_s']:.1f} s")
        for name, values in found["milliseconds"].items():
            print(f"  {name:17} {values['median']:8.1f} ms   (5 % {values['p5']:.1f}, 95 % {values['p95']:.1f})")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
