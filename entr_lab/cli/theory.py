"""`entr-lab theory`: every statement with its worst case, slack and certificate; a gate that exits 1 on a violation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from entr_lab.theory.statements import Result

__all__ = ["theory"]


def theory(
    statement: Annotated[str | None, typer.Option(help="Show one statement in full, for example B3.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds for the adversary's search.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of every search.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write theory.json and the plots here.")] = None,
) -> None:
    """Check every statement of the theory: bound, worst case found, slack, certificate."""
    from entr_lab.cli.common import available_cores, console, prepare_out, progress_bar, strict_json, write_json
    from entr_lab.theory.checks import verify
    from entr_lab.theory.statements import STATEMENTS

    names = None
    if statement is not None:
        known = {name.lower(): name for name in STATEMENTS}
        names = [known.get(statement.strip().lower(), statement)]
    folder = prepare_out(out)
    with progress_bar("checking", enabled=not as_json) as update:
        results = verify(
            names,
            seed=seed,
            budget=budget,
            workers=1 if names else min(2, available_cores()),
            progress=lambda done, total, ids: update(done, total, f"checked {ids}"),
        )
    report = {"seed": seed, "budget": budget, "statements": [_record(r) for r in results]}
    if as_json:
        print(strict_json(report))
    else:
        screen = console()
        if names:
            _print_one(screen, results[0])
        else:
            _print_table(screen, results)
    if folder is not None:
        from entr_lab.report.theory_plots import draw_all

        write_json(folder / "theory.json", report)
        draw_all(folder, seed=seed)
        console(quiet=as_json).print(f"wrote theory.json and four plots to {folder}", markup=False)
    if not all(r.holds for r in results):
        raise typer.Exit(1)


def _record(result: Result) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(result), "slack": result.slack}


def _certificate(result: Result) -> str:
    if result.undecided:
        return "UNDECIDED"
    if not result.certificates:
        return "–"
    return f"{sum(c.boxes for c in result.certificates)} boxes, {result.certificates[0].bits} bits"


def _number(value: float) -> str:
    return f"{value:.6f}" if abs(value) >= 1e-4 else f"{value:.1e}"


def _print_table(screen: Console, results: list[Result]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        padding=0,
        title="Statements: worst = largest left/right that the adversary found; 1 is equality",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for header in ("id", "statement, source", "worst, slack", "sharp", "certificate"):
        table.add_column(header, no_wrap=header in ("id", "worst, slack", "sharp"), overflow="fold")
    for r in results:
        bound = f"{_number(r.worst)}\n{_number(1.0 - r.worst)}" if r.worst is not None else "–"
        cells = (r.id, escape(f"{r.title}\n{r.source}"), bound, r.sharp if r.holds else "VIOLATED", _certificate(r))
        table.add_row(*cells, style=None if r.holds else "red")
    screen.print(table)
    broken = [r.id for r in results if not r.holds]
    missed = [r.id for r in results if r.sharp == "not reached"]
    if broken:
        screen.print(f"violated: {', '.join(broken)}")
    else:
        screen.print(f"all {len(results)} statements hold (rounding: 1e-9 in the ratio).")
    if missed:
        screen.print(f"sharp but not reached within the budget: {', '.join(missed)}; raise --budget.")
    screen.print("Rows with – are identities or measured laws; see one in full with --statement ID.")


def _print_one(screen: Console, r: Result) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    screen.print(f"{r.id}: {r.title}\nsource: {r.source}\nproof: {r.proof}\n", highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD)
    for header in ("part", "kind", "value", "slack", "tried", "verdict"):
        table.add_column(header, overflow="fold")
    for f in r.findings:
        verdict = "holds" if f.holds else "VIOLATED"
        verdict += ", sharp" if f.sharp else ""
        table.add_row(escape(f.part), f.kind, f"{f.worst:.9g}", f"{f.slack:.3g}", str(f.tried), verdict)
    screen.print(table)
    for f in r.findings:
        if f.note:
            screen.print(f"{f.part}: {f.note}", highlight=False, markup=False)
        for name, value in f.instance.items():
            text = ", ".join(f"{x:.6g}" for x in value) if isinstance(value, list) else str(value)
            screen.print(f"  worst instance of {f.part}: {name} = {text}", highlight=False, markup=False)
    for c in r.certificates:
        line = f"certificate {c.name}: {c.claim}, {c.range}; {c.boxes} boxes at {c.bits} bits; {c.ends}"
        screen.print(line, highlight=False, markup=False)
    if r.undecided:
        screen.print(r.undecided, highlight=False, markup=False)
