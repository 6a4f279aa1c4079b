"""Cost of each keep rule beside one pass that only reads the rule's columns and writes a mask, on one thread.

    python bench/rules_speed.py [--tokens 10000000] [--repeats 10] [--out rules_speed.json]

The floor is the fastest way that eager torch has to read the same float32 columns once and write one boolean per
token: `addcmul` over three columns into a scratch block that stays in cache (`mul`, for two), then one comparison,
with the fourth column if there is one, that writes the mask. Blocks of several sizes and no blocks are tried, and the
fastest counts. Every rule reads log π, log μ and H (a token without a finite H has no record); outward sides and M2PO
read the advantage, entr-gini Σμ² as well.

Floor and rule alternate, so that a busy machine slows both; of all repeats the smallest time counts. Times are CPU
time of this thread, which a quiet machine shows as wall time. For scale, the table also has a full sort of δ² with a
running mean, which M2PO avoids.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from entr_lab import __version__
from entr_lab.rules import RULES, BoundedRule, KeepRule, Side
from entr_lab.tokens import TokenBatch

FLOOR_BLOCKS = (1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18)
TARGET = {RULES["entr"](): 3.0}
"""Largest allowed ratio to the floor, of ENTR as published."""


def make_batch(n_tokens: int, seed: int) -> TokenBatch:
    """Tokens with an LLM-like profile: most entropies near 0, δ growing with √H, both signs of advantage."""
    generator = torch.Generator().manual_seed(seed)
    entropy = torch.rand(n_tokens, generator=generator).pow_(4).mul_(3.0)
    logp_mu = torch.rand(n_tokens, generator=generator).mul_(entropy).neg_()
    noise = torch.randn(n_tokens, generator=generator).mul_(entropy.sqrt()).mul_(0.4)
    zeros = torch.zeros(n_tokens, dtype=torch.int64)
    return TokenBatch(
        logp_pi=logp_mu + noise,
        logp_mu=logp_mu,
        entropy_mu=entropy,
        advantage=torch.randn(n_tokens, generator=generator),
        collision_mu=entropy.neg().exp_(),
        sequence=zeros,
        group=zeros,
        weight_version=zeros,
        target_version=0,
    )


def columns_of(rule: KeepRule, batch: TokenBatch) -> list[Tensor]:
    """Return the columns that the rule must read."""
    columns = [batch.logp_pi, batch.logp_mu, batch.entropy_mu]
    if rule.name == "m2po" or (isinstance(rule, BoundedRule) and rule.side is Side.OUTWARD):
        columns.append(batch.advantage)
    if batch.collision_mu is not None and "collision_mu" in rule.needs:
        columns.append(batch.collision_mu)
    return columns


def floor_pass(columns: list[Tensor], block: int) -> Callable[[], Tensor]:
    """Return a function that reads every column once and writes one mask."""
    n_tokens = len(columns[0])
    mask = torch.empty(n_tokens, dtype=torch.bool)
    scratch = torch.empty(min(block, n_tokens))
    first, second, third, *rest = columns

    def run() -> Tensor:
        for start in range(0, n_tokens, block):
            here = slice(start, min(start + block, n_tokens))
            sums = scratch[: here.stop - start]
            torch.addcmul(first[here], second[here], third[here], out=sums)
            torch.ge(sums, rest[0][here] if rest else 0.0, out=mask[here])
        return mask

    return run


def sorted_prefix(batch: TokenBatch) -> Tensor:
    """Return M2PO's cutoff as a sort would find it."""
    squares = (batch.logp_pi - batch.logp_mu).square_().sort().values
    running = squares.double().cumsum(0) / torch.arange(1, len(squares) + 1)
    return running <= 0.04


def seconds(function: Callable[[], Tensor]) -> float:
    """Return the CPU time of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def measure(batch: TokenBatch, repeats: int) -> list[dict[str, Any]]:
    """Return one row per rule: best time, best floor, their ratio, the share of tokens that it drops."""
    rules = [kind() for kind in RULES.values()] + [RULES["entr"](side=Side.OUTWARD)]  # type: ignore[call-arg]
    rows = []
    for rule in rules:
        columns = columns_of(rule, batch)
        floors = [floor_pass(columns, block) for block in (*FLOOR_BLOCKS, batch.n_tokens)]
        fastest = min(floors, key=lambda run: min(seconds(run) for _ in range(3)))
        masked = 1.0 - float(rule.keep(batch).float().mean())
        floor = cost = float("inf")
        for _ in range(repeats):
            floor = min(floor, seconds(fastest))
            cost = min(cost, seconds(lambda rule=rule: rule.keep(batch)))  # type: ignore[misc]
        rows.append(_row(repr(rule), len(columns), cost, floor, batch.n_tokens, masked, TARGET.get(rule)))
    floor = min(rows[0]["floor_ns"], rows[1]["floor_ns"]) * batch.n_tokens / 1e9
    sort = min(seconds(lambda: sorted_prefix(batch)) for _ in range(max(1, repeats // 2)))
    rows.append(_row("(full sort of δ², running mean)", 2, sort, floor, batch.n_tokens, 0.0, None))
    return rows


def _row(
    name: str, n_columns: int, cost: float, floor: float, n_tokens: int, masked: float, target: float | None
) -> dict[str, Any]:
    return {
        "rule": name,
        "columns": n_columns,
        "ns_per_token": 1e9 * cost / n_tokens,
        "floor_ns": 1e9 * floor / n_tokens,
        "ratio": cost / floor,
        "masked_frac": masked,
        "target": target,
    }


def commit() -> str:
    """Return the commit that is checked out, with a + if the tree differs from it."""
    done = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the rows as JSON to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = measure(make_batch(arguments.tokens, arguments.seed), arguments.repeats)
    print(f"{arguments.tokens} packed float32 tokens, one thread, best of {arguments.repeats}, load {load:.1f}")
    print(f"{'rule':66} {'columns':>7} {'ns/token':>9} {'floor':>6} {'ratio':>6}")
    for row in rows:
        target = f"  (at most {row['target']:g})" if row["target"] else ""
        print(
            f"{row['rule']:66} {row['columns']:7d} {row['ns_per_token']:9.2f} {row['floor_ns']:6.2f} "
            f"{row['ratio']:6.2f}{target}"
        )
    if arguments.out:
        record = {
            "command": f"python bench/rules_speed.py --tokens {arguments.tokens} --repeats {arguments.repeats}",
            "version": __version__,
            "commit": commit(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "load_average": load,
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
