"""The table and the verdicts of `entr-lab sim`."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from entr_lab.report.comparison import Comparison, MethodRow, Verdict
from entr_lab.report.intervals import Interval

__all__ = ["print_comparison"]

_STYLES = {Verdict.SURVIVES: "green", Verdict.DEGRADED: "yellow", Verdict.COLLAPSED: "red"}


def print_comparison(comparison: Comparison, screen: Console, *, title: str) -> None:
    """Print one row and one sentence a method; fits 80 columns."""
    screen.print(title, style="bold", markup=False)
    table = Table(header_style="bold", box=box.SIMPLE_HEAD, padding=0)
    table.add_column("method", no_wrap=True)
    for header in ("final", "vs sync", "vs best", "lost", "mask%", "H rem", "E[r²]", "KL"):
        table.add_column(Text(header), justify="right", no_wrap=True)  # Text: brackets are not markup
    for row in comparison.rows:
        table.add_row(*_cells(row))
    screen.print(table)
    screen.print(
        f"vs best: {comparison.best or 'none'}, the highest asynchronous mean. lost: collapsed or non-finite runs. "
        "mask%, H rem: tokens dropped, their mean entropy. E[r²]: of kept tokens. KL: k3, all tokens.",
        style="dim",
        markup=False,
    )
    for row in comparison.rows:
        line = Text(f"{row.name}: ", style="bold")
        line.append(row.sentence, style=_STYLES[row.verdict])
        screen.print(line)


def _cells(row: MethodRow) -> list[str]:
    metrics = row.metrics
    return [
        row.name,
        _interval(row.final) if row.final.n else "non-finite",
        _interval(row.to_sync, sign=True),
        _interval(row.to_best, sign=True),
        f"{row.n_collapsed}/{row.n_runs}",
        _number(metrics["masked_frac"], 100.0),
        _number(metrics["removed_entropy"]),
        _number(metrics["kept_ratio_sq"]),
        _number(metrics["kl_k3"]),
    ]


def _interval(value: Interval | None, *, sign: bool = False) -> str:
    if value is None:
        return ""
    mean = f"{value.mean:+.3f}" if sign else f"{value.mean:.3f}"
    half = "–" if math.isnan(value.half) else f"{value.half:.3f}"
    return f"{mean}±{half}".replace("0.", ".")


def _number(value: Interval, unit: float = 1.0) -> str:
    mean = value.mean * unit
    if math.isnan(mean):
        return "–"
    return (f"{mean:.2g}" if abs(mean) < 10 else f"{mean:.0f}").replace("0.", ".", 1)
