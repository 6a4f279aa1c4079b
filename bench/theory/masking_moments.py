"""How long do exact estimator moments take? All rules, 10,000 positions, V = 1024 (target: 10 s).

    python bench/theory/masking_moments.py

Prints one JSON object with wall and processor seconds of the enumeration and of each rule, and the peak memory.
"""

from __future__ import annotations

import json
import platform
import resource
import time

import numpy as np

from entr_lab.theory.divergence import normalise, tilt
from entr_lab.theory.masking import WEIGHTS, enumerate_tokens
from entr_lab.theory.thresholds import all_moments

POSITIONS, VOCABULARY, BLOCK = 10_000, 1024, 2_000


def main() -> None:
    """Time the rules block by block, so that memory stays flat."""
    rng = np.random.default_rng(0)
    wall = dict.fromkeys(["enumeration", *WEIGHTS], 0.0)
    processor = dict(wall)
    for _ in range(0, POSITIONS, BLOCK):
        logp = normalise(3 * rng.standard_normal((BLOCK, VOCABULARY)))
        delta, _ = tilt(logp, rng.standard_normal((BLOCK, VOCABULARY)))
        advantage = rng.choice([-1.0, 1.0], (BLOCK, VOCABULARY))
        tokens = None
        for name in wall:
            start, cpu = time.perf_counter(), time.process_time()
            if tokens is None:
                tokens = enumerate_tokens(logp, logp + delta, advantage)
            else:
                all_moments(tokens, [name])
            wall[name] += time.perf_counter() - start
            processor[name] += time.process_time() - cpu
    print(
        json.dumps(
            {
                "positions": POSITIONS,
                "vocabulary": VOCABULARY,
                "rules": len(WEIGHTS),
                "wall_s": round(sum(wall.values()), 2),
                "cpu_s": round(sum(processor.values()), 2),
                "cpu_s_each": {name: round(s, 2) for name, s in processor.items()},
                "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                "numpy": np.__version__,
                "python": platform.python_version(),
                "machine": platform.processor() or platform.machine(),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
