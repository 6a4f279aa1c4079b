"""`entr-lab train`: Ray, vLLM and a torch trainer, asynchronously; the tiny model on CPU by default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from entr_lab.real.config import RunConfig

__all__ = ["train"]


def train(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file, see examples/; the laptop demo if not given.", show_default=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="section.key=value, on top of the file; may be repeated.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method, e.g. 'entr-outward' or 'entr(tau=1.6)'.")] = None,
    batches: Annotated[int | None, typer.Option(help="Batches to train on, those before a resume included.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of data, sampling and the model's random state.")] = None,
    out: Annotated[Path | None, typer.Option(help="New folder of the run; runs/DATE-METHOD if not given.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved configuration and what each process will hold.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON; the rest goes to stderr.")
    ] = False,
) -> None:
    """Train a model with Ray and vLLM, synchronously or asynchronously; a tiny one on this CPU by default."""
    import sys
    from contextlib import nullcontext, redirect_stdout

    from entr_lab.cli.common import console, strict_json
    from entr_lab.errors import ConfigError
    from entr_lab.real.config_io import load_config
    from entr_lab.real.run_folder import new_run
    from entr_lab.real.signals import termination_as_interrupt

    chosen = [*(settings or []), *_shorthands(method, batches, seed)]
    others = (config, settings or None, method, seed, out)
    if resume is not None and any(option is not None for option in others):
        raise ConfigError("--resume takes the configuration of the run; only --batches goes with it.")
    resolved = _resumed(resume, batches) if resume is not None else load_config(config, chosen)
    screen = console(quiet=as_json)
    if dry_run:
        _print_plan(screen, resolved, as_json)
        return
    _check_installed()
    folder = resume or out or _default_folder(resolved)
    if resume is None:
        new_run(folder, resolved)
    # Ray prints warnings of its own on standard output.
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        try:
            with termination_as_interrupt():
                summary = _run(screen, resolved, folder, resumed=resume is not None)
        except KeyboardInterrupt:
            print(_what_is_left(folder, resolved), file=sys.stderr)
            raise typer.Exit(130) from None
    if as_json:
        print(strict_json(summary))
    else:
        _print_summary(screen, summary)


def _what_is_left(folder: Path, config: RunConfig) -> str:
    """Say what an interrupted run can go on with."""
    from entr_lab.errors import DataError
    from entr_lab.pipeline import Mode
    from entr_lab.real.checkpoint import latest_checkpoint

    try:
        last = latest_checkpoint(folder / "checkpoints").name
    except DataError:
        return f"interrupted before the first checkpoint; what was recorded is in {folder}."
    if config.asynchrony.mode == Mode.EXACT:
        return f"interrupted; mode exact cannot be resumed, what was recorded is in {folder}."
    return f"interrupted; go on from {last} with: entr-lab train --resume {folder}"


def _shorthands(method: str | None, batches: int | None, seed: int | None) -> list[str]:
    import json

    given = {"method.name": method, "trainer.batches": batches, "seed": seed}
    return [f"{key}={json.dumps(value)}" for key, value in given.items() if value is not None]


def _resumed(folder: Path, batches: int | None) -> RunConfig:
    from entr_lab.errors import check_range
    from entr_lab.real.run_folder import open_run

    config = open_run(folder)
    if batches is None:
        return config
    check_range("--batches", batches, low=1)
    return config.model_copy(update={"trainer": config.trainer.model_copy(update={"batches": batches})})


def _default_folder(config: RunConfig) -> Path:
    from datetime import datetime

    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in config.method.name).strip("-")
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"


def _check_installed() -> None:
    from importlib.util import find_spec

    from entr_lab.errors import ConfigError

    missing = [name for name in ("ray", "vllm", "transformers", "safetensors", "psutil") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"training needs {', '.join(missing)}; install entr-lab[real-cpu] or entr-lab[real-gpu], or look at the "
            f"configuration with --dry-run."
        )


def _run(screen: Console, config: RunConfig, folder: Path, *, resumed: bool) -> dict[str, Any]:
    from entr_lab.cli.train_view import TrainView
    from entr_lab.real.run import run
    from entr_lab.real.run_records import Observers
    from entr_lab.traces.recording import trace_observer

    with TrainView(screen, config.trainer.batches) as view:
        view.say(f"run folder: {folder}")
        observers = Observers(view.say, [view.step], [view.evaluation], view.model, trace_observer)
        return run(config, folder, observers, resumed=resumed)


def _print_plan(screen: Console, config: RunConfig, as_json: bool) -> None:
    from rich import box
    from rich.table import Table

    from entr_lab.cli.common import strict_json
    from entr_lab.real.config_io import dump_config
    from entr_lab.real.run_plan import plan_processes

    rows = plan_processes(config)
    if as_json:
        print(strict_json({"config": config.model_dump(mode="json"), "processes": rows}))
        return
    screen.print(dump_config(config), highlight=False, markup=False, end="")
    table = Table(box=box.SIMPLE_HEAD, title="What each process will hold", title_justify="left")
    for header in ("process", "count", "on", "holds"):
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(row.name, str(row.count), row.place, row.holds)
    screen.print(table)


def _count(summary: dict[str, Any]) -> str:
    before = summary["batches"] - summary["batches_now"]
    return f"{summary['batches_now']} batches" + (f" after {before} before" if before else "")


def _print_summary(screen: Console, summary: dict[str, Any]) -> None:
    dropped = sum(summary["groups_dropped"].values())
    screen.print(
        f"trained {_count(summary)} in {summary['seconds']:.1f} s: reward {summary['reward_first']:.3f} -> "
        f"{summary['reward_last']:.3f} (first and last {summary['reward_window']} batches), "
        f"{summary['steps_per_minute']:.1f} steps/min, {summary['rollout_tokens_per_second']:.0f} tokens/s, "
        f"{summary['groups_trained']} groups trained, {dropped} dropped.",
        highlight=False,
    )
    screen.print(f"go on with: entr-lab train --resume {summary['folder']} --batches N", highlight=False, markup=False)
