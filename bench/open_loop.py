"""The open loop beside the prototype that specified it, and why the two differ where they do.

    python bench/open_loop.py [--seeds 8] [--first 200] [--workers 2]

Writes bench/open_loop/results.json and prints Markdown: every number with its interval beside the prototype's, then
the matched-budget table again with one assumption at a time set to the prototype's.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from entr_lab.cli.common import strict_json
from entr_lab.report.provenance import provenance
from entr_lab.rules import Entr, IcePop, Kpop, M2po
from entr_lab.sim.drift import make_drift
from entr_lab.sim.logits import normal_noise, seeded_generator
from entr_lab.sim.matched_budget import masked, matched_budget
from entr_lab.sim.mismatch import Mismatch
from entr_lab.sim.open_loop_result import OpenLoopResult
from entr_lab.sim.open_loop_seed import REFERENCE, drift_scales
from entr_lab.sim.outliers import GROUPS
from entr_lab.sim.scaling import Estimate, seed_estimate
from entr_lab.sim.synthetic import TokenSource
from entr_lab.sim.tokens_level import OpenLoopConfig, run_open_loop
from entr_lab.tokens import TokenBatch

OUT = Path(__file__).with_name("open_loop") / "results.json"

# The prototype's numbers, one seed each, without intervals. RMS low / high / all, E|δ| all.
SLOPES = {
    "iid": (0.56, 0.57, 0.57, 1.12),
    "feature": (0.57, 0.57, 0.57, 1.12),
    "rank1": (0.57, 0.56, 0.57, 1.12),
    "local-gradient": (1.11, 1.03, 1.08, 2.06),
    "temperature": (0.42, 0.18, 0.35, 0.89),
}
# Mean z of dominant, non-dominant, open-choice tokens.
OUTLIERS = {
    "iid": (0.004, 1.29, 0.11),
    "feature": (0.004, 1.34, 0.10),
    "rank1": (0.004, 1.23, 0.08),
    "local-gradient": (0.000, 0.12, 0.11),
    "temperature": (0.010, 3.37, 0.08),
}
# Masked % at n = 0, 5, 30, mean H removed at 30, then masked % and H removed at 30 with raised entropy.
BUDGET = {
    "icepop": (0.060, 0.097, 1.38, 1.33, 2.45, 1.85),
    "kpop": (0.067, 14.4, 34.7, 0.83, 52.0, 1.15),
    "m2po": (0.083, 10.2, 18.7, 1.31, 36.5, 1.79),
    "entr (ε = 0.1)": (0.060, 0.120, 0.55, 0.60, 0.81, 0.61),
    "entr (ε = 0.01)": (0.067, 0.167, 0.68, 0.57, 0.96, 0.60),
}


def shown(estimate: Estimate, factor: float = 1.0) -> str:
    """Return `value ± half-width` at three digits."""
    half = factor * (estimate.high - estimate.low) / 2
    return f"{factor * estimate.value:.3g} ± {half:.2g}"


def print_table(head: list[str], rows: list[list[str]]) -> None:
    """Print Markdown."""
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def compare(result: OpenLoopResult) -> None:
    """Print the tables with the prototype's numbers in brackets."""
    rows = []
    for row in result.slopes:
        found = (row.rms_low, row.rms_high, row.rms_all, row.abs_all)
        rows.append([row.drift, *(f"{shown(e)} ({p:.2f})" for e, p in zip(found, SLOPES[row.drift], strict=True))])
    print_table(["slope: ours (prototype)", "RMS, H < .1", "RMS, H > .1", "RMS, all", "E abs δ, all"], rows)
    z = {(row.cause, row.group): shown(row.mean_z) for row in result.outliers}
    causes = list(dict.fromkeys(row.cause for row in result.outliers))
    rows = []
    for cause in causes:
        known = OUTLIERS.get(cause, (math.nan,) * 3)
        pairs = zip((z[cause, group] for group in GROUPS), known, strict=True)
        rows.append([cause, *(one if math.isnan(p) else f"{one} ({p:g})" for one, p in pairs)])
    print_table(["mean z: ours (prototype)", *GROUPS], rows)
    print_table(["H from", "to", "RMS jump"], [[f"{r.low:g}", f"{r.high:g}", shown(r.rms)] for r in result.jumps])
    rows = []
    for line in result.budget:
        cells = {(cell.temperature, cell.lag): cell for cell in line.cells}
        last, raised = cells[1.0, 30], cells[1.4, 30]
        ours = [shown(cells[1.0, lag].masked_frac, 100) for lag in (0, 5, 30)] + [shown(last.removed_entropy)]
        ours += [shown(raised.masked_frac, 100), shown(raised.removed_entropy)]
        prototype = BUDGET.get(line.rule) if line.calibrated else None
        pairs = zip(ours, prototype or (math.nan,) * 6, strict=True)
        label = f"{line.rule} × {line.scale.value:.3g}" if line.calibrated else f"{line.rule}, as published"
        difference = "" if line.rule == REFERENCE and line.calibrated else shown(last.excess, 100)
        rows.append([label, difference, *(one if math.isnan(p) else f"{one} ({p:g})" for one, p in pairs)])
    print_table(
        [
            "masked %: ours (prototype)",
            f"minus {REFERENCE} at 30, paired",
            "n = 0",
            "5",
            "30",
            "H removed",
            "30 at T = 1.4",
            "H removed",
        ],
        rows,
    )
    print(f"\nBudget at step 0: {shown(result.step0_frac, 100)} % (prototype 0.058).")
    parts = ", ".join(f"{row.part} {shown(row.rms)} nats, {shown(row.share, 100)} %" for row in result.attribution)
    print(f"Attribution: {parts}; telescoping error {result.telescoping_error:.1e}.")
    print(f"Top-p leak: {shown(result.leak.mean_offset)} nats, constant within {result.leak.worst_error:.1e}.")


@dataclass(frozen=True)
class GaussianRounding:
    """The prototype's stand-in for bf16: z (1 + 2⁻⁹ ξ), ξ ~ N(0, 1)."""

    actual: Mismatch

    def engine_logits(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return the perturbed logits."""
        noise = normal_noise(*logits.shape, generator=generator, dtype=logits.dtype)
        return logits * (1 + 2.0**-9 * noise)

    def recorded(self, logp: Tensor, generator: torch.Generator) -> Tensor:
        """Record as the actual mismatch does."""
        return self.actual.recorded(logp, generator)


def all_eligible(batch: TokenBatch) -> TokenBatch:
    """Return the batch with advantages along δ, so that M2PO's budget runs over all tokens."""
    columns = ("logp_pi", "logp_mu", "entropy_mu", "sequence", "group", "weight_version")
    return TokenBatch(
        **{name: getattr(batch, name) for name in columns},
        advantage=torch.where(batch.log_ratio >= 0, 1.0, -1.0),
        target_version=batch.target_version,
    )


def variant(
    config: OpenLoopConfig, seeds: list[int], lags: tuple[int, ...], *, gaussian: bool, eligible: bool
) -> dict[str, list[Estimate]]:
    """Return rule → per later lag (masked % with interval), with the given assumptions."""
    scales = drift_scales(config)
    change: Callable[[TokenBatch], TokenBatch] = all_eligible if eligible else lambda batch: batch
    rules = {"icepop": IcePop(), "kpop": Kpop(), "m2po": M2po(), "entr (ε = 0.1)": Entr(tau=1.0, eps=0.1)}
    found: dict[str, list[list[float]]] = {name: [] for name in rules}
    for seed in seeds:
        source = TokenSource(
            base=config.base,
            drift=make_drift("feature", config.base.vocab, seeded_generator(seed, 100)),
            scale_per_version=scales.per_version,
            mismatch=GaussianRounding(config.mismatch) if gaussian else config.mismatch,  # type: ignore[arg-type]
            chunk=config.chunk,
        )
        step0 = change(source.draw(config.calibration_tokens, [0], seeded_generator(seed, 101))[0])
        later = source.draw(config.later_tokens, lags, seeded_generator(seed, 102))
        budget = masked(config.reference, step0).masked_frac
        table = matched_budget(rules, step0, {lag: change(batch) for lag, batch in later.items()}, budget)
        for name, (fitted, cells) in table.items():
            found[name].append([fitted.scale, *(100 * cells[lag].masked_frac for lag in lags)])
    return {name: [seed_estimate(list(column)) for column in zip(*rows, strict=True)] for name, rows in found.items()}


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = list(range(arguments.first, arguments.first + arguments.seeds))
    config = OpenLoopConfig()
    wall, cpu = time.perf_counter(), time.process_time()
    result = run_open_loop(config, seeds, workers=arguments.workers)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    per_seed = f"{wall / len(seeds):.1f} s wall and {cpu / len(seeds):.1f} s CPU per seed"
    print(f"seeds {seeds[0]}-{seeds[-1]}, {arguments.workers} workers: {per_seed}, peak {memory:.0f} MB")
    compare(result)
    small, few = replace(config, later_tokens=16_384), seeds[:4]
    variants = {
        "as here": variant(small, few, (5, 30), gaussian=False, eligible=False),
        "n = 5 as far as √5/√30 of n = 30 (ballistic lag 12)": variant(
            small, few, (12, 30), gaussian=False, eligible=False
        ),
        "and M2PO over all tokens": variant(small, few, (12, 30), gaussian=False, eligible=True),
        "and Gaussian noise for bf16": variant(small, few, (12, 30), gaussian=True, eligible=True),
    }
    rows = [
        [name, rule, f"{cells[0].value:.3g}", shown(cells[1]), shown(cells[2])]
        for name, table in variants.items()
        for rule, cells in table.items()
    ]
    print_table(["assumptions", "rule", "× threshold", "masked % at n = 5", "at n = 30"], rows)
    OUT.parent.mkdir(exist_ok=True)
    record = {"wall_s": wall, "cpu_s": cpu, "peak_mb": memory, "result": result, "variants": variants}
    OUT.write_text(strict_json({**record, "provenance": provenance() | {"command": sys.argv}}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
