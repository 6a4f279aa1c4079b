"""In sync mode with a float32 engine there is no staleness and no mismatch: how large is |δ|, over all tokens?

    python bench/real/sync_exactness.py [--batches 20] [--seed 0]

One run of the laptop demo for each of two methods, sync-grpo and entr; δ = log π − log μ and the versions are read from
the runs' traces. Exit code 1 if a token has |δ| ≥ 1e-4 or a version other than its update's. Five minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from train_runs import train, write_result

from entr_lab.traces.writer import read_trace

METHODS = ("sync-grpo", "entr")
LIMIT = 1e-4
SETTINGS = {
    "rollout.engine_dtype": "float32",
    "asynchrony.mode": "sync",
    "checkpoint.every": 0,
    "log.tensorboard": False,
    "log.traces": True,
}


def measure(method: str, batches: int, seed: int) -> dict[str, Any]:
    """Return what one run's trace says."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(run, {**SETTINGS, "method.name": method}, batches=batches, seed=seed)
        tokens, sequences = read_trace(run / "trace")
    target = dict(zip(sequences["sequence"].to_pylist(), sequences["target_version"].to_pylist(), strict=True))
    sampled = tokens.filter(tokens["trainable"])
    wanted = np.array([target[number] for number in sampled["sequence"].to_pylist()])
    delta = np.abs(sampled["logp_pi"].to_numpy().astype(float) - sampled["logp_mu"].to_numpy().astype(float))
    return {
        "batches": len(set(sequences["step"].to_pylist())),
        "tokens": len(delta),
        "largest_abs_delta": float(delta.max()),
        "mean_abs_delta": float(delta.mean()),
        "p99_abs_delta": float(np.quantile(delta, 0.99)),
        "not_finite": int((~np.isfinite(delta)).sum()),
        "other_versions": int((sampled["weight_version"].to_numpy() != wanted).sum()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = {method: measure(method, options.batches, options.seed) for method in METHODS}
    exact = all(one["largest_abs_delta"] < LIMIT and not one["other_versions"] for one in found.values())
    for method, one in found.items():
        print(
            f"{method}: {one['tokens']} tokens of {one['batches']} batches, |δ| ≤ {one['largest_abs_delta']:.1e} "
            f"(mean {one['mean_abs_delta']:.1e}), {one['other_versions']} tokens of another version"
        )
    print(
        write_result(__file__, {"settings": SETTINGS, "limit": LIMIT, "exact": exact, "methods": found}, options.seed)
    )
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
