"""The methods on the real path at forced staleness 30: a bf16 engine against a float32 trainer.

    python bench/real/comparison.py --rate 3e-4 [--seeds 900 901 902] [--batches 120] [--parallel 1] [--runs FOLDER]

Every run is one `entr-lab train` of the laptop demo in mode exact (22 + 8), or sync for the reference, evaluated every
ten batches on 128 held-out prompts. Runs that are finished are not made again, so the command may be interrupted and
repeated. Prints the table and verdicts of `entr-lab sim`, and writes comparison-RATE.json beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from rich.console import Console
from setup_engine import machine
from train_runs import columns, train

from entr_lab.cli.sim_table import print_comparison
from entr_lab.diagnostics import METRICS
from entr_lab.objective import get_method
from entr_lab.report.comparison import compare
from entr_lab.report.learning import comparison_data, method_runs
from entr_lab.report.provenance import provenance
from entr_lab.sim.outcome import RunRecord

METHODS = ("sync-grpo", "async-grpo", "fixed", "icepop", "kpop", "m2po", "entr", "entr-outward")
INTER, INTRA, EVERY = 22, 8, 10
SETTINGS = {
    "rollout.max_sequences": 576,
    "log.tensorboard": False,
    "log.traces": False,
    "checkpoint.every": 0,
    "evaluation.every": EVERY,
    "evaluation.rollouts": 128,
}


def make(method: str, seed: int, rate: float, batches: int, folder: Path) -> str:
    """Make one run unless it is there; return what to say of it."""
    done = folder / "summary.json"
    if done.exists():
        return "was there"
    if folder.exists():  # what an interrupted comparison left behind
        folder.rename(folder.with_name(f"{folder.name}-{sum(1 for _ in folder.parent.iterdir())}-broken"))
    synchronous = get_method(method).synchronous
    settings = SETTINGS | {"method.name": method, "trainer.learning_rate": rate}
    settings |= {"asynchrony.mode": "sync" if synchronous else "exact"}
    if not synchronous:
        settings |= {"asynchrony.max_inter": INTER, "asynchrony.max_intra": INTRA}
    try:
        summary = train(folder, settings, batches=batches, seed=seed)
    except SystemExit as error:
        if "gradient was not finite" not in str(error):
            raise
        summary = {"failed": str(error)}
    done.write_text(json.dumps(summary))
    return "not finite" if "failed" in summary else f"{summary['seconds']:.0f} s"


def record(method: str, seed: int, folder: Path) -> RunRecord:
    """Return a finished run in the simulator's form."""
    steps, evaluations = columns(folder / "metrics.jsonl"), columns(folder / "evaluations.jsonl")
    failed = "failed" in json.loads((folder / "summary.json").read_text())
    order = np.argsort(evaluations["step"])
    at = evaluations["step"][order].astype(np.int64)
    return RunRecord(
        method=method,
        seed=seed,
        updates=len(steps["step"]),
        eval_updates=at,
        eval_reward=evaluations["reward_mean"][order].astype(np.float32),
        eval_entropy=steps["entropy_pi"][np.minimum(at, len(steps["step"]) - 1)].astype(np.float32),
        metrics={name: steps[name].astype(np.float32) for name in METRICS},
        failed_at=len(steps["step"]) if failed else None,
    )


def main() -> None:
    """Make the runs, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, required=True, help="learning rate; 3e-4 is the demo's, 1e-4 neutral")
    parser.add_argument("--seeds", type=int, nargs="+", default=[900, 901, 902])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs/comparison"), help="where the runs go")
    options = parser.parse_args()

    # Seeds outermost, so that an interrupted comparison has whole pairs.
    runs = [(method, seed) for seed in options.seeds for method in options.methods]
    folders = {run: options.runs / f"{options.rate:g}-{options.batches}" / f"{run[0]}-{run[1]}" for run in runs}
    options.runs.joinpath(f"{options.rate:g}-{options.batches}").mkdir(parents=True, exist_ok=True)

    broken: list[str] = []

    def one(run: tuple[str, int]) -> None:
        try:
            said = make(*run, options.rate, options.batches, folders[run])
        except SystemExit as error:  # the other runs are wanted all the same
            said = str(error)
            broken.append(said)
        print(f"{run[0]}, seed {run[1]}: {said}", flush=True)

    with ThreadPoolExecutor(options.parallel) as pool:
        list(pool.map(one, runs))
    if broken:
        raise SystemExit(f"{len(broken)} of {len(runs)} runs failed; repeat the command. The first: {broken[0]}")

    records = [record(*run, folders[run]) for run in runs]
    comparison = compare(method_runs([get_method(m) for m in options.methods], options.seeds, records))
    title = f"real path, learning rate {options.rate:g}, lags {INTER} + {INTRA}, {options.batches} batches, "
    print_comparison(comparison, Console(width=100), title=title + f"seeds {options.seeds}")
    found = {
        "learning_rate": options.rate,
        "lags": [INTER, INTRA],
        "batches": options.batches,
        "seeds": options.seeds,
        "settings": SETTINGS,
        "rewards": {f"{r.method}-{r.seed}": [round(float(x), 4) for x in r.eval_reward] for r in records},
        "evaluated_after": {f"{r.method}-{r.seed}": r.eval_updates.tolist() for r in records},
        "comparison": comparison_data(comparison),
        "provenance": provenance() | {"command": sys.argv, "machine": machine()},
    }
    path = Path(__file__).parent / f"comparison-{options.rate:g}.json"
    path.write_text(json.dumps(found, indent=1).replace("NaN", "null") + "\n")


if __name__ == "__main__":
    main()
