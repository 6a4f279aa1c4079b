"""Speed of the learning level beside its prototype and its arithmetic limit, on one core.

    python bench/sim_speed.py [--updates 40] [--seeds 4] [--preset default]

Prints run-updates per second of one worker process (all default methods × the seeds) and of the prototype rebuilt in
sim_prototype.py (as many runs), update by update in turn so that a busy machine slows both alike; the share of each
part; and the fraction of the arithmetic limit: the time that the matrix products alone would take at the rate of one
product of the same shape, measured between the updates too. Evaluations are part of an update.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
from sim_prototype import METHODS as PROTOTYPE_METHODS
from sim_prototype import Prototype

from entr_lab.objective import get_method
from entr_lab.sim import cohort as cohort_module
from entr_lab.sim.cohort import Cohort
from entr_lab.sim.rollouts import Sampler
from entr_lab.sim.scenario import PRESETS, Scenario, make_scenario

METHODS = ("sync-grpo", "async-grpo", "fixed", "icepop", "kpop", "m2po", "entr", "entr-outward")
PARTS = ("token_pass", "policy_gradient", "policy_loss", "diagnose", "behaviour_noise")


class Clock:
    """Seconds spent in named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `function` so that its time is added to `name`."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        return wrapper


def products_per_run_update(scenario: Scenario) -> float:
    """FLOP of the two upper layers' products: once each for sampling and forward, twice for backward; and evaluation.

    The first layer is a table lookup and its gradient a scatter, without products. Groups without advantage, which
    skip the backward pass, are counted all the same, so the fraction may look better late in training.
    """
    shape = scenario.shape
    upper = 2.0 * (shape.hidden * shape.hidden + shape.hidden * shape.vocabulary)
    tokens = scenario.rollouts * scenario.task.horizon
    evaluation = scenario.eval_rollouts * scenario.task.horizon / scenario.eval_every
    return upper * (4.0 * tokens + evaluation)


def product_rate(seconds: float = 0.02) -> tuple[float, float]:
    """Return (FLOP, seconds) of a burst of [3072, 64] × [64, 64] products."""
    left, right, out = torch.randn(3072, 64), torch.randn(64, 64), torch.empty(3072, 64)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        torch.mm(left, right, out=out)
        count += 1
    return count * 2.0 * 3072 * 64 * 64, time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    scenario = make_scenario(options.preset, updates=options.updates)
    clock = Clock()
    start = time.perf_counter()
    runs = Cohort(scenario, [get_method(name) for name in METHODS], range(options.seeds))
    warm_start = time.perf_counter() - start
    prototype = Prototype(scenario, range(options.seeds))
    for part in PARTS:
        setattr(cohort_module, part, clock.timed(part, getattr(cohort_module, part)))
    Sampler.sample = clock.timed("sample", Sampler.sample)  # type: ignore[method-assign]
    flop = seconds = training = 0.0
    steps = runs.train()
    peer: list[float] = []
    for update in range(options.updates):
        start = time.perf_counter()
        next(steps)
        training += time.perf_counter() - start
        burst = product_rate()
        flop, seconds = flop + burst[0], seconds + burst[1]
        start = time.perf_counter()
        if update % scenario.eval_every == 0:
            final = prototype.evaluate()
        prototype.update(update)
        peer.append(time.perf_counter() - start)
    count = len(METHODS) * options.seeds * options.updates
    limit = flop / seconds / products_per_run_update(scenario)
    rate, peer_rate = count / training, count / sum(peer)
    shares = {name: value / training for name, value in clock.seconds.items()}
    shares["rest"] = 1.0 - sum(shares.values())
    report = {
        "run_updates_per_s": round(rate, 1),
        "prototype_run_updates_per_s": round(peer_rate, 1),
        "times_the_prototype": round(rate / peer_rate, 2),
        "arithmetic_limit_per_s": round(limit, 1),
        "fraction_of_limit": round(rate / limit, 3),
        "product_gflops": round(flop / seconds / 1e9, 1),
        "warm_start_s_per_seed": round(warm_start / options.seeds, 2),
        "shares": {name: round(share, 3) for name, share in sorted(shares.items(), key=lambda item: -item[1])},
        "last_evaluation": {
            "learning_level": last_rewards(runs, options.seeds),
            "prototype": dict(zip(PROTOTYPE_METHODS, final.view(-1, options.seeds).mean(-1).tolist(), strict=True)),
        },
        "machine": f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread",
    }
    print(json.dumps(report, indent=1))


def last_rewards(runs: Cohort, seeds: int) -> dict[str, float]:
    """Return each method's mean reward at the last evaluation."""
    found: dict[str, float] = {}
    for record in runs.records():
        found[record.method] = found.get(record.method, 0.0) + float(record.eval_reward[-1]) / seeds
    return found


if __name__ == "__main__":
    main()
