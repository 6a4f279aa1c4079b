"""`entr-lab sim`: train under staleness with every method at several seeds, and say which survive."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from entr_lab.objective import Method
    from entr_lab.sim.learning_level import LearningResult
    from entr_lab.sim.scenario import Scenario

__all__ = ["Request", "sim"]

DEFAULT_METHODS = "sync-grpo,async-grpo,fixed,icepop,kpop,m2po,entr,entr-outward"
QUICK_METHODS = "sync-grpo,async-grpo,entr,entr-outward"
QUICK_SEEDS, QUICK_UPDATES = "4", 90


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a learning run, checked."""

    scenario: Scenario
    methods: list[Method]
    seeds: list[int]
    workers: int
    threads: int
    out: Path | None


def sim(
    staleness: Annotated[
        int | None, typer.Option(help="Age of a rollout's oldest token in weight versions: 30 if nothing is given.")
    ] = None,
    inter: Annotated[int | None, typer.Option(help="Versions between the last token and the update.")] = None,
    intra: Annotated[int | None, typer.Option(help="Weight updates during a rollout; goes with --inter.")] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="Take per-token versions from a plan's schedule file instead.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated; hyper-parameters in parentheses: 'entr(tau=1.6,eps=0.1)'.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="A count (8), a range (100-107) or a list (3,5,9).")] = None,
    updates: Annotated[int | None, typer.Option(help="Optimiser steps per run.")] = None,
    preset: Annotated[str, typer.Option(help="default, collapse, exact-mu or drift.")] = "default",
    surrogate: Annotated[str, typer.Option(help="plain-ratio, or ppo-clip as the paper prints it.")] = "plain-ratio",
    quick: Annotated[bool, typer.Option("--quick", help="Four methods, four seeds, fewer updates.")] = False,
    open_loop: Annotated[
        bool, typer.Option("--open-loop", help="No training: scaling laws and budgets on synthetic logits.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Processes; the available cores if not given.")] = None,
    threads: Annotated[int, typer.Option(help="Torch threads per process.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="New folder for plots, Parquet metrics and run.json.")] = None,
) -> None:
    """Train under staleness with every method, several seeds, and say which survive."""
    from entr_lab.errors import ConfigError

    if open_loop:
        trained = {"--inter": inter, "--schedule": schedule, "--methods": methods, "--updates": updates}
        if given := [name for name, value in trained.items() if value is not None]:
            raise ConfigError(f"--open-loop trains nothing, so {', '.join(given)} does not go with it; leave it out.")
        _open_loop(30 if staleness is None else staleness, "4" if seeds is None else seeds, workers, as_json, out)
        return
    if workers is None or workers > 1:
        from entr_lab.sim.workers import start_server

        start_server()  # the workers import torch while this process does
    scenario = _scenario(preset, _lag(staleness, inter, intra, schedule), updates, quick)
    defaults = (QUICK_METHODS, QUICK_SEEDS) if quick else (DEFAULT_METHODS, "8")
    chosen = _methods(defaults[0] if methods is None else methods, surrogate)
    request = _request(scenario, chosen, defaults[1] if seeds is None else seeds, workers, threads, out)
    _learning(request, as_json)


def _lag(staleness: int | None, inter: int | None, intra: int | None, schedule: Path | None) -> Any:
    """Return the lag settings, from exactly one way to give them."""
    from entr_lab.errors import ConfigError
    from entr_lab.sim.scenario import LagSettings

    ways = [staleness is not None, inter is not None or intra is not None, schedule is not None]
    if sum(ways) > 1:
        raise ConfigError("give one of --staleness, --inter with --intra, or --schedule; they fix the same thing.")
    if schedule is not None:
        return _schedule_lag(schedule)
    if inter is not None or intra is not None:
        if inter is None or intra is None:
            raise ConfigError("--inter and --intra go together; give both, 0 where there is none.")
        return LagSettings(inter=inter, intra=intra)
    return LagSettings.of_staleness(30 if staleness is None else staleness)


def _schedule_lag(path: Path) -> Any:
    import numpy as np

    from entr_lab.sim.lag import LagTable
    from entr_lab.sim.scenario import LagSettings, make_scenario
    from entr_lab.sim.schedule import read_schedule

    scenario = make_scenario()
    table = read_schedule(path).lags(64 * scenario.rollouts, scenario.task.horizon, np.random.default_rng(0))
    return LagSettings(table=LagTable(table))


def _scenario(preset: str, lag: Any, updates: int | None, quick: bool) -> Scenario:
    from entr_lab.sim.scenario import make_scenario

    return make_scenario(preset, lag=lag, updates=QUICK_UPDATES if quick and updates is None else updates)


def _methods(text: str, surrogate: str) -> list[Method]:
    from entr_lab.cli.common import split_list
    from entr_lab.errors import ConfigError
    from entr_lab.objective import make_surrogate, parse_method

    setting = make_surrogate(surrogate)
    found = [parse_method(item).with_setting(surrogate=setting) for item in split_list(text)]
    if not found:
        raise ConfigError("--methods is empty; name at least one, see 'entr-lab rules'.")
    names = [method.name for method in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"--methods names {', '.join(repeated)} twice; a method is compared with others, not itself.")
    return found


def _request(
    scenario: Scenario, methods: list[Method], seeds: str, workers: int | None, threads: int, out: Path | None
) -> Request:
    from entr_lab.cli.common import available_cores, parse_seeds, prepare_out
    from entr_lab.errors import check_range

    found = parse_seeds(seeds)
    processes = min(available_cores(), len(found)) if workers is None else workers
    check_range("--workers", processes, low=1, high=256)
    check_range("--threads", threads, low=1, high=256)
    return Request(scenario, methods, found, processes, threads, prepare_out(out))


def _learning(request: Request, as_json: bool) -> None:
    from entr_lab.cli.common import console, progress_bar, strict_json, write_json
    from entr_lab.cli.sim_table import print_comparison
    from entr_lab.report.comparison import compare
    from entr_lab.report.learning import method_runs
    from entr_lab.sim.learning_level import run_learning

    began = time.monotonic()
    with progress_bar(f"training {len(request.methods)} methods × {len(request.seeds)} seeds") as update:
        result = run_learning(
            request.scenario,
            request.methods,
            request.seeds,
            workers=request.workers,
            threads=request.threads,
            progress=update,
        )
    wall = time.monotonic() - began
    screen = console(quiet=as_json)
    if not result.runs:
        screen.print("interrupted before the first evaluation; nothing to show.")
        raise typer.Exit(130)
    comparison = compare(method_runs(request.methods, request.seeds, result.runs))
    data = _record(request, result, comparison, wall)
    if as_json:
        print(strict_json(data))
    else:
        print_comparison(comparison, screen, title=_title(request))
        screen.print(_footer(request, result, wall))
    if request.out is not None:
        from entr_lab.report.learning_files import write_curves, write_metrics, write_planes

        write_metrics(result.runs, request.out)
        write_curves(request.methods, result.runs, request.out)
        write_planes(request.methods, result.runs, request.out)
        write_json(request.out / "run.json", data)
        screen.print(f"written to {request.out}: run.json, updates.parquet, evaluations.parquet, plots.", markup=False)
    if result.partial:
        raise typer.Exit(130)


def _title(request: Request) -> str:
    scenario = request.scenario
    lag = scenario.lag
    where = (
        f"oldest token {lag.staleness} versions (from a schedule)"
        if lag.table is not None
        else f"staleness {lag.staleness} = {lag.inter} inter + {lag.intra} intra"
    )
    return f"{where}, preset {scenario.name}, {request.methods[0].surrogate.name}, {scenario.updates} updates"


def _footer(request: Request, result: LearningResult, wall: float) -> str:
    seeds = ", ".join(map(str, request.seeds)) if len(request.seeds) <= 12 else f"{len(request.seeds)} seeds"
    done = sum(run.updates for run in result.runs)
    text = (
        f"seeds {seeds}; 95 % t-intervals over seeds, differences paired by seed, not corrected for the number of "
        f"comparisons; {done / wall:.0f} run-updates/s, {wall:.1f} s on {request.workers} processes."
    )
    if result.partial:
        least = min(run.updates for run in result.runs)
        text = f"INTERRUPTED: runs hold {least} or more of {request.scenario.updates} updates. " + text
    return text


def _record(request: Request, result: LearningResult, comparison: Any, wall: float) -> dict[str, Any]:
    """Return everything that makes the result reproducible, and the result."""
    from entr_lab.report.learning import comparison_data
    from entr_lab.report.provenance import provenance
    from entr_lab.sim.outcome import summarise

    return {
        "schema": 1,
        "scenario": request.scenario,
        "methods": {method.name: repr(method) for method in request.methods},
        "seeds": request.seeds,
        "interrupted": result.partial,
        "comparison": comparison_data(comparison),
        "runs": [
            {
                "method": run.method,
                "seed": run.seed,
                "updates": run.updates,
                "failed_at": run.failed_at,
                "summary": summarise(run),
                "rewards": run.eval_reward,
            }
            for run in result.runs
        ],
        "wall_s": wall,
        "provenance": provenance(),
    }


def _open_loop(staleness: int, seeds: str, workers: int | None, as_json: bool, out: Path | None) -> None:
    from entr_lab.cli.common import (
        available_cores,
        console,
        parse_seeds,
        prepare_out,
        progress_bar,
        strict_json,
        write_json,
    )
    from entr_lab.cli.open_loop import print_open_loop, to_json
    from entr_lab.errors import check_range
    from entr_lab.report.provenance import provenance
    from entr_lab.sim.lag import split_staleness
    from entr_lab.sim.tokens_level import OpenLoopConfig, run_open_loop
    from entr_lab.sim.versions_mix import VersionMix

    check_range("--staleness", staleness, low=2)
    inter, intra = split_staleness(staleness)
    config = OpenLoopConfig(lags=(0, max(1, staleness // 6), staleness), mix=VersionMix(inter=inter, intra=intra))
    found = parse_seeds(seeds)
    processes = check_range("--workers", available_cores() if workers is None else workers, low=1, high=256)
    folder = prepare_out(out)
    with progress_bar(f"open loop, {len(found)} seeds") as update:
        result = run_open_loop(config, found, progress=update, workers=int(processes))
    data = {"schema": 1, **to_json(result), "provenance": provenance()}
    screen = console(quiet=as_json)
    if as_json:
        print(strict_json(data))
    else:
        print_open_loop(result, screen)
    if folder is not None:
        write_json(folder / "run.json", data)
        screen.print(f"written to {folder / 'run.json'}.", markup=False)
