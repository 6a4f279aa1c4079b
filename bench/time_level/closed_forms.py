"""The time level against closed forms: python bench/time_level/closed_forms.py

M/G/1 processor sharing (mean sojourn, utilisation, mean number), M/D/1 with one slot (mean wait, Pollaczek and
Khinchine), Little's law on a full plan, the deterministic synchronous and one-step cycles. Writes closed_forms.json
and closed_forms.md beside itself.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from entr_lab.sim.clock import VirtualClock
from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.service import Engine, Rollout
from entr_lab.sim.time_costs import EngineCosts
from entr_lab.sim.time_level import simulate
from entr_lab.sim.time_stats import Area

HERE = Path(__file__).parent
ARRIVALS, BATCHES = 200_000, 40


def queue(costs: EngineCosts, rate: float, lengths: np.ndarray, seed: int) -> dict[str, float]:
    """Poisson arrivals at `rate` per second to one engine: sojourn (mean, half-width), busy share, mean number."""
    clock, engine = VirtualClock(), Engine(0, costs)
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate, lengths.size))
    sojourn = np.empty(lengths.size)
    present, busy = Area(), Area()

    def schedule() -> None:
        engine.place += 1  # alarms set before this one are void
        if math.isfinite(engine.next_completion()):
            clock.at(max(clock.now, engine.next_completion()), leave, engine.place)

    def arrive(index: int) -> None:
        tokens = int(lengths[index])
        present.change(clock.now, 1)
        busy.change(clock.now, 1 - busy.value)
        engine.arrive(clock.now, Rollout(index, index, tokens, 1, 0, clock.now, 0.0))
        schedule()
        if index + 1 < lengths.size:
            clock.at(float(arrivals[index + 1]), arrive, index + 1)

    def leave(place: int) -> None:
        if place != engine.place:
            return
        index = engine.complete(clock.now).ticket
        sojourn[index] = clock.now - arrivals[index]
        present.change(clock.now, -1)
        if not engine.running:
            busy.change(clock.now, -1)
        schedule()

    clock.at(float(arrivals[0]), arrive, 0)
    clock.run()
    means = sojourn.reshape(BATCHES, -1).mean(axis=1)
    half = 2.02 * means.std(ddof=1) / math.sqrt(BATCHES)
    return {
        "sojourn": sojourn.mean(),
        "half": half,
        "busy": busy.mean(clock.now),
        "number": present.mean(clock.now),
        "rate": lengths.size / clock.now,
    }


def single_server() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    rng = np.random.default_rng(0)
    for load in (0.3, 0.6, 0.8):
        for name, lengths in (
            ("deterministic", np.full(ARRIVALS, 100)),
            ("log-normal, cv 1.5", np.maximum(1, rng.lognormal(math.log(100) - 0.59, 1.086, ARRIVALS).round())),
        ):
            service = 0.01 * lengths.mean()
            got = queue(EngineCosts.linear(0.0, 0.01, slots=1_000_000), load / service, lengths, 1)
            exact = service / (1 - got["rate"] * service)
            rows.append(row(f"M/G/1-PS sojourn, {name}, load {load}", exact, got["sojourn"], got["half"]))
            rows.append(row(f"M/G/1-PS busy share, {name}, load {load}", got["rate"] * service, got["busy"], 2e-3))
            little = got["rate"] * got["sojourn"]
            rows.append(row(f"M/G/1-PS Little's law, {name}, load {load}", little, got["number"], 1e-6 * little))
        lengths = np.full(ARRIVALS, 100)
        got = queue(EngineCosts.linear(0.0, 0.01, slots=1), load, lengths, 2)
        rate = got["rate"]
        rows.append(
            row(f"M/D/1 sojourn (one slot), load {load}", 1 + rate / (2 * (1 - rate)), got["sojourn"], got["half"])
        )
    return rows


COSTS = {"decode_fixed": 0.01, "decode_per_sequence": 0.001, "decode_per_context_token": 1e-6, "slots": 64,
         "trainer_fixed": 0.5, "trainer_per_token": 1e-4, "transfer": 0.25}  # fmt: skip
FIXED = {"gpus": 2, "generator_gpus": 1, "costs": COSTS, "lengths": {"kind": "fixed", "mean": 200, "cap": 200},
         "batch": {"groups": 4, "rollouts": 8}}  # fmt: skip


def cycles() -> list[dict[str, object]]:
    decode = 200 * (0.01 + 0.001 * 32) + 1e-6 * 32 * 200**2 / 2
    train = 0.5 + 1e-4 * 32 * 200
    rows = []
    sync = simulate(parse_plan(FIXED | {"protocol": {"mode": "split-sync"}}), steps=50)
    rows.append(row("synchronous cycle, s/step", decode + train + 0.25, sync.seconds_per_step, 1e-6))
    free = FIXED | {"costs": COSTS | {"transfer": 0.0, "slots": 32}, "protocol": {"mode": "one-step"}}
    one = simulate(parse_plan(free), steps=50)
    rows.append(row("one-step cycle, s/step", max(decode, train), one.seconds_per_step, 1e-6))
    plan = FIXED | {"lengths": {"mean": 200, "cv": 1.0, "cap": 2000}, "protocol": {"mode": "async"}}
    full = simulate(parse_plan(plan), steps=2000)
    little = full.rollouts / full.seconds * full.rollout_seconds
    rows.append(row("Little's law, rollouts in flight of a full plan", little, full.in_flight_mean, 0.01 * little))
    worst = max(abs(math.fsum(part.values()) - full.seconds) for part in full.accounts.values())
    rows.append(row("idle account minus wall-clock, s", 0.0, worst, 1e-9))
    return rows


def row(name: str, exact: float, got: float, tolerance: float) -> dict[str, object]:
    met = bool(abs(got - exact) <= tolerance)
    print(f"{'met ' if met else 'MISS'} {name}: exact {exact:.6g}, simulated {got:.6g} ± {tolerance:.2g}", flush=True)
    return {"claim": name, "exact": float(exact), "simulated": float(got), "tolerance": float(tolerance), "met": met}


def main() -> None:
    rows = single_server() + cycles()
    (HERE / "closed_forms.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    lines = [
        "# The time level against closed forms",
        "",
        "Command: `python bench/time_level/closed_forms.py`.",
        f"Queues: {ARRIVALS:,} Poisson arrivals.",
        f"The tolerance of a sojourn is its 95 % half-width over {BATCHES} batch means.",
        "",
        "| claim | exact | simulated | tolerance | |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['claim']} | {r['exact']:.6g} | {r['simulated']:.6g} | {r['tolerance']:.2g} | "
        f"{'met' if r['met'] else 'MISS'} |"
        for r in rows
    ]
    (HERE / "closed_forms.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
