"""Speed of the time level: python bench/time_level/speed.py [--quick]

1,000 trainer steps of 128 groups × 16 rollouts on 512 generators through the real pipeline classes, linearity in
trajectories, and a search over 200 configurations of 200 steps on two processes. Writes speed.json beside itself.
"""

from __future__ import annotations

import json
import platform
import resource
import sys
import time
from pathlib import Path

import numpy as np

from entr_lab.sim.plan_config import parse_plan, with_split
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.plan_search import evaluate_all, with_bound
from entr_lab.sim.time_level import simulate

LARGE = {
    "name": "speed",
    "gpus": 1024,
    "generator_gpus": 512,
    "hardware": {"gpu": "H800", "model": "qwen2.5-7b"},
    "lengths": {"mean": 3500, "cv": 1.0, "cap": 20_000, "prompt": 200},
    "batch": {"groups": 128, "rollouts": 16},
    "protocol": {"mode": "async", "max_inter": 4, "max_intra": 4},
}
SMALL = LARGE | {"gpus": 32, "generator_gpus": 16, "batch": {"groups": 8, "rollouts": 8}}


def timed(plan: Plan, steps: int) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = simulate(plan, steps=steps)
    return {
        "steps": steps,
        "trajectories": result.rollouts,
        "events": result.events,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def search() -> dict[str, float]:
    base = parse_plan(SMALL)
    plans = [
        with_split(with_bound(base, inter, intra), pool)
        for pool in range(6, 26)
        for inter in (1, 2, 4, 6, 8)
        for intra in (1, 4)
    ]
    wall, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    points = evaluate_all([(plan, 200, 0) for plan in plans], workers=2)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "configurations": len(points),
        "steps": 200,
        "rollouts_per_step": base.batch.size * base.batch.rollouts,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime,
    }


def main() -> None:
    quick = "--quick" in sys.argv
    plan = parse_plan(LARGE)
    runs = [timed(plan, steps) for steps in ((10, 20, 40) if quick else (50, 100, 200, 400, 1000))]
    count = np.array([run["trajectories"] for run in runs])
    cpu = np.array([run["cpu_s"] for run in runs])
    slope, start = np.polyfit(count, cpu, 1)
    report = {
        "command": "python bench/time_level/speed.py" + (" --quick" if quick else ""),
        "machine": {"processor": platform.processor() or platform.machine(), "python": platform.python_version()},
        "runs": runs,
        "linear_fit": {
            "cpu_s_per_million_trajectories": 1e6 * slope,
            "intercept_s": start,
            "exponent": float(np.polyfit(np.log(count), np.log(cpu), 1)[0]),
            "r_squared": float(1.0 - ((cpu - slope * count - start) ** 2).sum() / ((cpu - cpu.mean()) ** 2).sum()),
            "largest_residual": float(np.abs(cpu - slope * count - start).max() / cpu.max()),
        },
        "search": None if quick else search(),
    }
    text = json.dumps(report, indent=2)
    print(text)
    if not quick:
        Path(__file__).with_name("speed.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
