"""What the benchmarks of whole runs share: one `entr-lab train`, its files as arrays, and where results go."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from setup_engine import machine

from entr_lab.report.provenance import provenance

__all__ = ["columns", "share_seconds", "train", "write_result"]


def train(folder: Path, settings: Mapping[str, object], *, batches: int, seed: int) -> dict[str, Any]:
    """Train in a process of its own and return the summary.

    Raises:
        SystemExit: the run failed; names its last words.
    """
    options = [f"--set={name}={json.dumps(value)}" for name, value in settings.items()]
    command = [sys.executable, "-c", "from entr_lab.cli.main import main; main()", "train", "--json"]
    numbers = [f"--out={folder}", f"--batches={batches}", f"--seed={seed}"]
    done = subprocess.run([*command, *numbers, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{folder.name} failed: {done.stderr.strip().splitlines()[-1]}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def columns(path: Path) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a file of JSON lines; what a line lacks, and null, is NaN."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    names = set().union(*rows)
    return {name: np.array([np.nan if r.get(name) is None else r[name] for r in rows]) for name in names}


def share_seconds(metrics: Mapping[str, NDArray[np.float64]], name: str, state: str) -> float:
    """Return the seconds a batch that `name` spent in `state`, over a whole run; 0 if it never was in it."""
    shares = metrics.get(f"time/{name}/{state}")
    if shares is None or not np.isfinite(shares[-1]):
        return 0.0
    return float(shares[-1] * metrics["seconds"][-1] / len(shares))


def write_result(script: str, result: Mapping[str, object], seed: int) -> Path:
    """Write the result beside its script, with what it was made with, and return where."""
    path = Path(script).with_suffix(".json")
    made = provenance() | {"command": [Path(sys.executable).name, *sys.argv], "machine": machine(), "seed": seed}
    path.write_text(json.dumps({**result, "provenance": made}, indent=1, default=float) + "\n")
    return path
