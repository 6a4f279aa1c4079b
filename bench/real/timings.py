"""At the demo's size: one weight update, its proof, the rule per token, and an optimiser step of ENTR against M2PO.

    python bench/real/timings.py [--rounds 20] [--seed 0]

The trainer is the run's own (`TrainerHost`), in this process; the engine has its process beside it and is idle while
the trainer is timed. Every round plays a fresh batch of the demo, then both methods train on it in turn, in an order
that alternates; ratios are taken within rounds. Three minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from generator_speed import ratio
from setup_engine import spread
from train_runs import write_result

METHODS = ("entr", "m2po")
REPEATS = 20
"""Calls of a rule that are timed together."""


def clocked(log: dict[str, list[float]], name: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns, and write how many milliseconds it took into `log`."""
    start = time.perf_counter()
    found = call()
    log.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
    return found


async def update(generator: Any, host: Any, log: dict[str, list[float]]) -> None:
    """Publish the trainer's weights and load them into the engine, with every part's time."""
    start = time.perf_counter()
    manifest = clocked(log, "publish, canary reference included", host.publish)
    pushed = time.perf_counter()
    proof = await generator.update_weights(manifest, False)
    log.setdefault("load and prove", []).append(1e3 * (time.perf_counter() - pushed))
    log.setdefault("weight update, whole", []).append(1e3 * (time.perf_counter() - start))
    assert proof is not None
    start = time.perf_counter()
    await generator.canary(manifest.canary)
    log.setdefault("proof: the engine's answers", []).append(1e3 * (time.perf_counter() - start))
    host.release(manifest)


def time_rules(host: Any, groups: Any, log: dict[str, list[float]]) -> int:
    """Time both rules on a whole batch, in microseconds a token; return its tokens."""
    import torch

    from entr_lab.objective import parse_method
    from entr_lab.real.columns import UpdateColumns

    rollouts = [rollout for group in groups for rollout in group]
    scored = host.trainer.score(rollouts)
    for name in METHODS:
        method = parse_method(name)
        columns = UpdateColumns.of(groups, method.advantage)
        batch = columns.batch(
            range(len(rollouts)), torch.cat([torch.from_numpy(x) for x in scored]), host.trainer.version
        )
        start = time.perf_counter()
        for _ in range(REPEATS):
            method.rule.keep(batch)
        seconds = (time.perf_counter() - start) / REPEATS
        log.setdefault(f"rule of {name}, µs a token", []).append(1e6 * seconds / batch.n_tokens)
    return int(batch.n_tokens)


async def measure(rounds: int, seed: int) -> dict[str, Any]:
    """Return milliseconds (microseconds for the rules) of every part in every round."""
    import torch

    from entr_lab.objective import parse_method
    from entr_lab.real.config_io import load_config
    from entr_lab.real.environments.vocabulary import load_codec
    from entr_lab.real.generator import Generator
    from entr_lab.real.parts import engine_settings, make_play
    from entr_lab.real.run import prepare_model
    from entr_lab.real.trainer_host import TrainerHost

    torch.set_num_threads(1)
    config = load_config(None, [f"seed={seed}"])
    model, facts = prepare_model(config)
    play, _ = make_play(config, load_codec(model, facts.vocabulary))
    host = TrainerHost(config, model, facts.vocabulary)
    generator = await Generator.start(engine_settings(config, model, facts, 0))
    size, count = config.rollout.group_size, config.rollout.batch_groups
    log: dict[str, list[float]] = {}
    tokens: list[int] = []
    for turn in range(rounds + 1):
        if turn == 1:  # the first round warms up
            log, tokens = {}, []
        await update(generator, host, log)
        names = [(turn * count + g, f"r{turn}g{g}m{m}") for g in range(count) for m in range(size)]
        played = await asyncio.gather(*(play(generator, number, name) for number, name in names))
        groups = [played[i : i + size] for i in range(0, len(played), size)]
        tokens.append(time_rules(host, groups, log))
        for name in METHODS if turn % 2 else reversed(METHODS):
            train = partial(host.trainer.update, groups, host.trainer.version, parse_method(name))
            clocked(log, f"optimiser step of {name}", train)
    await generator.shutdown()
    host.close()
    return {"tokens_per_batch": sum(tokens) / len(tokens), "log": log}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = asyncio.run(measure(options.rounds, options.seed))
    log = found.pop("log")
    print(f"{found['tokens_per_batch']:.0f} trainable tokens a batch, {options.rounds} rounds; milliseconds")
    for name, values in log.items():
        row = spread(values)
        print(f"  {name:36} {row['median']:9.3f}   (5 % {row['p5']:.3f}, 95 % {row['p95']:.3f})")
    mean, factor = ratio(*(log[f"optimiser step of {name}"] for name in METHODS))
    print(f"an optimiser step of ENTR takes {mean:.3f} (×/÷ {factor:.3f}) times one of M2PO")
    result = {**found, "rounds": options.rounds, "milliseconds": {name: spread(values) for name, values in log.items()}}
    print(write_result(__file__, {**result, "entr_over_m2po": [mean, factor]}, options.seed))


if __name__ == "__main__":
    main()
