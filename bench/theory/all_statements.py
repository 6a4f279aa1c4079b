"""How long does `entr-lab theory` take at its default budget? (target: 30 s on two cores, below 1 GB)

    python bench/theory/all_statements.py

Prints one JSON object: wall and processor seconds, peak memory of one worker, and every statement's worst ratio.
"""

from __future__ import annotations

import json
import platform
import resource
import time

import numpy as np

from entr_lab.theory.checks import verify


def main() -> None:
    """Run every statement with two workers."""
    start = time.perf_counter()
    results = verify(workers=2)
    wall = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "wall_s": round(wall, 2),
                "cpu_s": round(used.ru_utime + used.ru_stime, 2),
                "peak_mib_of_a_worker": used.ru_maxrss // 1024,
                "holds": all(r.holds for r in results),
                "worst": {r.id: r.worst for r in results},
                "sharp": {r.id: r.sharp for r in results},
                "numpy": np.__version__,
                "python": platform.python_version(),
                "machine": platform.processor() or platform.machine(),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
