"""The open loop: what drift, mismatch and version mixture do to δ, before any learning.

Logits are synthetic and nothing trains, so every expectation over tokens is a sum over the vocabulary; only the
matched-budget and attribution tables sample tokens, because a batch is what their questions are about. A seed
redraws everything, and its numbers do not depend on which other seeds run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock
from typing import Final

import numpy as np
import torch

from entr_lab.errors import ConfigError, check_range
from entr_lab.sim.matched_budget import Masked
from entr_lab.sim.open_loop_result import (
    AttributionRow,
    BudgetCell,
    BudgetRow,
    JumpRow,
    LeakCheck,
    OpenLoopConfig,
    OpenLoopResult,
    OutlierRow,
    SlopeRow,
)
from entr_lab.sim.open_loop_seed import PARTS, REFERENCE, Cell, Scales, SeedTables, drift_scales, observe
from entr_lab.sim.outliers import GROUPS, Moments
from entr_lab.sim.scaling import Estimate, fit_slope, seed_estimate
from entr_lab.sim.synthetic import chunks

__all__ = ["OpenLoopConfig", "OpenLoopResult", "run_open_loop"]

_JUMP_EDGES: Final = (0.0, 0.05, 0.3, 1.0, math.inf)
_NOTHING: Final = Estimate(math.nan, math.nan, math.nan)


def run_open_loop(
    config: OpenLoopConfig,
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
    workers: int = 1,
) -> OpenLoopResult:
    """Run every table of the open loop.

    Each seed runs on one core: its arrays fit a cache and are too small to share between threads, whose waiting for
    one another costs more than the work where other processes want the cores too.

    Args:
        config: sizes and settings.
        seeds: distinct non-negative seeds; two or more give intervals over seeds.
        progress: called with (chunks done, chunks in all), by one thread at a time.
        workers: seeds that run at once; the numbers do not depend on it.

    Raises:
        ConfigError: no seeds, or a seed twice.
        DataError: the reference rule masks less than one token of a step-0 batch.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"seeds must be distinct and at least one, got {list(seeds)}; list each once.")
    for seed in seeds:
        check_range("seed", seed, low=0)
    check_range("workers", workers, low=1)
    sizes = (config.positions, config.calibration_tokens, config.later_tokens, config.later_tokens)
    total = len(seeds) * sum(len(chunks(size, config.chunk)) for size in sizes)
    done, lock = 0, Lock()

    def tick() -> None:
        nonlocal done
        with lock:
            done += 1
            if progress is not None:
                progress(done, total)

    with _one_thread_per_operation(), ThreadPoolExecutor(workers) as pool:
        scales = drift_scales(config)
        found = list(pool.map(lambda seed: observe(config, seed, scales, tick), seeds))
    return _result(config, seeds, scales, found)


@contextmanager
def _one_thread_per_operation() -> Iterator[None]:
    """Keep torch from splitting single operations; restores the setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _result(
    config: OpenLoopConfig, seeds: Sequence[int], scales: Scales, found: Sequence[SeedTables]
) -> OpenLoopResult:
    """Turn what the seeds observed into estimates."""
    return OpenLoopResult(
        config=config,
        seeds=tuple(seeds),
        slopes=tuple(_slopes(config, name, scales, found) for name in config.drifts),
        outliers=tuple(_outliers(cause, group, found) for cause in found[0].causes for group in GROUPS),
        jumps=_jumps(config, found),
        budget=_budget_rows(found),
        step0_frac=seed_estimate([one.budget for one in found]),
        leak=LeakCheck(
            top_p=config.top_p,
            mean_offset=seed_estimate([one.offset for one in found]),
            worst_error=max(one.leak_error for one in found),
        ),
        attribution=tuple(_attribution(part, found) for part in PARTS),
        telescoping_error=max(one.telescoping_error for one in found),
    )


def _slopes(config: OpenLoopConfig, drift: str, scales: Scales, found: Sequence[SeedTables]) -> SlopeRow:
    """Fit the slopes of one drift model on the positions of all seeds."""
    moments = Moments.concatenate([one.causes[drift] for one in found])
    rng = np.random.default_rng(0)  # resamples, not data: the same for every drift model
    low, split, high = config.entropy_low, config.entropy_split, config.entropy_high

    def rms(start: float, end: float) -> Estimate:
        return fit_slope(moments.entropy, moments.square, kind="rms", low=start, high=end, rng=rng)

    return SlopeRow(
        drift=drift,
        scale=scales.at_target[drift],
        rms_low=rms(low, split),
        rms_high=rms(split, high),
        rms_all=rms(low, high),
        abs_all=fit_slope(moments.entropy, moments.absolute, kind="abs", low=low, high=high, rng=rng),
    )


def _outliers(cause: str, group: str, found: Sequence[SeedTables]) -> OutlierRow:
    cells = [one.causes[cause].outliers()[group] for one in found]
    return OutlierRow(
        cause=cause,
        group=group,
        share=seed_estimate([cell.share for cell in cells]),
        mean_abs=_over_seeds([cell.mean_abs for cell in cells]),
        mean_z=_over_seeds([cell.mean_z for cell in cells]),
    )


def _jumps(config: OpenLoopConfig, found: Sequence[SeedTables]) -> tuple[JumpRow, ...]:
    rows = []
    for low, high in pairwise(_JUMP_EDGES):
        sizes = []
        for one in found:
            entropy = one.causes[config.drifts[0]].entropy  # positions are shared by all drift models
            inside = one.jump[(entropy >= low) & (entropy < high)]
            sizes.append(math.sqrt(inside.mean().item()) if len(inside) else math.nan)
        rows.append(JumpRow(low, high, _over_seeds(sizes)))
    return tuple(rows)


def _budget_rows(found: Sequence[SeedTables]) -> tuple[BudgetRow, ...]:
    reference = [one.calibrated[REFERENCE][1] for one in found]
    rows = []
    for rule in found[0].calibrated:
        scale = seed_estimate([one.calibrated[rule][0].scale for one in found])
        cells = _cells([one.calibrated[rule][1] for one in found], reference)
        rows.append(BudgetRow(rule, True, scale, cells))
    for rule in found[0].published:
        cells = _cells([one.published[rule] for one in found], reference)
        rows.append(BudgetRow(rule, False, Estimate(1.0, 1.0, 1.0), cells))
    return tuple(rows)


def _cells(tables: Sequence[dict[Cell, Masked]], reference: Sequence[dict[Cell, Masked]]) -> tuple[BudgetCell, ...]:
    return tuple(
        BudgetCell(
            lag=lag,
            temperature=temperature,
            masked_frac=seed_estimate([table[temperature, lag].masked_frac for table in tables]),
            excess=seed_estimate(
                [
                    table[temperature, lag].masked_frac - other[temperature, lag].masked_frac
                    for table, other in zip(tables, reference, strict=True)
                ]
            ),
            removed_entropy=_over_seeds([table[temperature, lag].removed_entropy for table in tables]),
        )
        for temperature, lag in tables[0]
    )


def _attribution(part: str, found: Sequence[SeedTables]) -> AttributionRow:
    return AttributionRow(
        part=part,
        rms=seed_estimate([math.sqrt(one.parts[part][0]) for one in found]),
        share=seed_estimate([one.parts[part][1] for one in found]),
    )


def _over_seeds(values: Sequence[float]) -> Estimate:
    """Estimate over the seeds in which the quantity exists."""
    present = [value for value in values if not math.isnan(value)]
    return seed_estimate(present) if present else _NOTHING
