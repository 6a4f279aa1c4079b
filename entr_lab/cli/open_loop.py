"""Printing of the open loop: one rich table a question, and the same as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:  # the simulator imports torch, which the command line does only when it runs one
    from entr_lab.sim.open_loop_result import BudgetCell, BudgetRow, OpenLoopResult
    from entr_lab.sim.scaling import Estimate

__all__ = ["print_open_loop", "to_json"]

_REFERENCE = "entr (ε = 0.1)"
"""The rule whose budget all others are given, as the result names it."""


def print_open_loop(result: OpenLoopResult, console: Console) -> None:
    """Print every table of the open loop with its seeds and the meaning of its intervals."""
    seeds = ", ".join(str(seed) for seed in result.seeds)
    console.print(
        f"Open loop: synthetic logits, V = {result.config.base.vocab}, seeds {seeds}; expectations are exact over "
        f"the vocabulary. Intervals are 95 %: of slopes by bootstrap over positions, of the rest over seeds."
    )
    for table in (_slopes(result), _outliers(result), _jumps(result)):
        console.print(table)
    for temperature in (1.0, result.config.raised_temperature):
        console.print(_budget(result, temperature))
    console.print(_attribution(result))
    console.print(
        f"Top-p leak: sampling from the nucleus of {result.leak.top_p:g} shifts every δ of a position by "
        f"log(kept mass), {_number(result.leak.mean_offset, '+.4f')} nats on average; "
        f"largest departure from that constant {result.leak.worst_error:.1e}."
    )


def to_json(result: OpenLoopResult) -> dict[str, Any]:
    """Return the result as plain records, for `strict_json`."""
    return asdict(result)


def _number(estimate: Estimate, spec: str) -> str:
    """Return `value ± half-width`, or the value alone where there is no interval, or – where there is no value."""
    if math.isnan(estimate.value):
        return "–"
    if math.isnan(estimate.low):
        return format(estimate.value, spec)
    half = (estimate.high - estimate.low) / 2
    return f"{estimate.value:{spec}} ± {half:{spec.lstrip('+')}}"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _table(title: str, caption: str, columns: Sequence[str]) -> Table:
    table = Table(title=escape(title), caption=escape(caption), title_justify="left", caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    return table


def _slopes(result: OpenLoopResult) -> Table:
    split = result.config.entropy_split
    table = _table(
        "How δ grows with entropy: slope of log size against log H",
        "The √H law is a law for the RMS, √E[δ²]; E|δ| grows about as H. A drift that stays local has neither.",
        ("drift", f"RMS, H < {split:g}", f"RMS, H > {split:g}", "RMS, all", "E|δ|, all"),
    )
    for row in result.slopes:
        estimates = (row.rms_low, row.rms_high, row.rms_all, row.abs_all)
        table.add_row(row.drift, *(_interval(estimate) for estimate in estimates))
    return table


def _outliers(result: OpenLoopResult) -> Table:
    table = _table(
        "Low-entropy outliers",
        f"z = |δ|/√H. Drift models are scaled to RMS δ = {result.config.target_rms:g}; mismatches act alone.",
        ("cause", "tokens", "share %", "mean |δ|", "mean z"),
    )
    for index, row in enumerate(result.outliers):
        first_of_cause = index == 0 or result.outliers[index - 1].cause != row.cause
        share = f"{100 * row.share.value:.2f}"
        values = (_number(row.mean_abs, ".2g"), _number(row.mean_z, ".2g"))
        table.add_row(row.cause if first_of_cause else "", row.group, share, *values)
    return table


def _jumps(result: OpenLoopResult) -> Table:
    table = _table(
        "Jump of log μ at a switch to the next weight version",
        "RMS over tokens, nats, shared-feature drift.",
        ("H from", "to", "RMS jump"),
    )
    for row in result.jumps:
        table.add_row(f"{row.low:g}", f"{row.high:g}", _number(row.rms, ".4f"))
    return table


def _budget(result: OpenLoopResult, temperature: float) -> Table:
    entropy = "base entropy" if temperature == 1.0 else f"raised entropy (temperature {temperature:g})"
    lags = result.config.lags
    table = _table(
        f"Matched budget at {entropy}: masked %, and mean H of what is removed at lag {lags[-1]}",
        f"Thresholds are scaled to mask {_percent(result.step0_frac)} % of a step-0 batch, then left alone; "
        f"the last block keeps the papers' thresholds. The difference is paired, on the same tokens; a star marks "
        f"one whose interval excludes 0.",
        ("rule", "× threshold", *(f"n = {lag}" for lag in lags), f"− {_REFERENCE} at {lags[-1]}", "H removed"),
    )
    for index, row in enumerate(result.budget):
        if index and result.budget[index - 1].calibrated and not row.calibrated:
            table.add_section()
        cells = _cells(row, temperature)
        scale = f"{row.scale.value:.3g}" if row.calibrated else "as published"
        fractions = (_percent(cell.masked_frac) for cell in cells)
        itself = row.calibrated and row.rule == _REFERENCE
        difference = "" if itself else _difference(cells[-1].excess)
        table.add_row(row.rule, scale, *fractions, difference, _number(cells[-1].removed_entropy, ".2f"))
    return table


def _cells(row: BudgetRow, temperature: float) -> list[BudgetCell]:
    return [cell for cell in row.cells if cell.temperature == temperature]


def _percent(estimate: Estimate) -> str:
    scaled = type(estimate)(100 * estimate.value, 100 * estimate.low, 100 * estimate.high)
    return _number(scaled, ".2f" if scaled.value >= 1 else ".3f")


def _difference(estimate: Estimate) -> str:
    significant = estimate.low > 0 or estimate.high < 0
    scaled = type(estimate)(100 * estimate.value, 100 * estimate.low, 100 * estimate.high)
    return _number(scaled, "+.2f") + ("*" if significant else "")


def _attribution(result: OpenLoopResult) -> Table:
    mix = result.config.mix
    table = _table(
        f"What δ is made of at intra {mix.intra}, inter {mix.inter}",
        f"share = E[part · δ]/E[δ²]; parts sum to δ within {result.telescoping_error:.1e} nats.",
        ("part", "RMS, nats", "share %"),
    )
    for row in result.attribution:
        table.add_row(row.part, _number(row.rms, ".3f"), _percent(row.share))
    return table
