"""The laptop demo: does the reward rise by 0.25 within four minutes, and how long until the first step?

    python bench/real/demo.py [--methods entr entr-outward] [--seeds 0 1 2] [--batches 60]

Every run is one `entr-lab train` with its defaults, async(4, 2) on noted sums. Rewards are means of the first and of
the last ten batches; the first batch is timed from the command, with the tiny model in the cache.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from train_runs import train, write_result

RISE, MINUTES, START = 0.25, 4.0, 60.0
PATIENCE = 300.0
"""Seconds until a run without a first batch is not waited for any more."""


def seconds_to_first_batch(folder: Path) -> float:
    """Return the seconds until the run in `folder` has written its first batch."""
    began, metrics = time.monotonic(), folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and time.monotonic() < began + PATIENCE:
        time.sleep(0.05)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["entr", "entr-outward"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(1) as watcher:
        train(Path(root) / "warm", {}, batches=1, seed=0)  # builds the model if the cache lacks it
        for method in options.methods:
            for seed in options.seeds:
                folder = Path(root) / f"{method}-{seed}"
                start = watcher.submit(seconds_to_first_batch, folder)
                found = train(folder, {"method.name": method}, batches=options.batches, seed=seed)
                row = {"method": method, "seed": seed, "first_batch_after": start.result(), **found}
                del row["folder"]
                row["rise"] = row["reward_last"] - row["reward_first"]
                row["within_goals"] = (
                    row["rise"] >= RISE and row["seconds"] <= 60 * MINUTES and row["first_batch_after"] <= START
                )
                rows.append(row)
                print(
                    f"{method}, seed {seed}: {row['reward_first']:.2f} -> {row['reward_last']:.2f} in "
                    f"{row['seconds']:.0f} s, {row['steps_per_minute']:.0f} steps/min, "
                    f"{row['rollout_tokens_per_second']:.0f} tokens/s, first batch after "
                    f"{row['first_batch_after']:.0f} s",
                    flush=True,
                )
    goals = {"rise": RISE, "minutes": MINUTES, "first_batch_after": START}
    result = {"batches": options.batches, "goals": goals, "runs": rows}
    print(write_result(__file__, result, min(options.seeds)))


if __name__ == "__main__":
    main()
