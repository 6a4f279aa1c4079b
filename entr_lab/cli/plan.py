"""`entr-lab plan`: pools, lengths, tool latency → throughput, staleness, idle time that adds up, advice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from entr_lab.report.plan_study import PlanStudy
    from entr_lab.sim.plan_schema import Plan

__all__ = ["plan"]


def plan(
    config: Annotated[Path | None, typer.Argument(help="A plan in TOML; see examples/plans.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="A named plan: dapo-math, verl-fully-async, laptop …; 'list' shows all.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs in all.")] = None,
    generator_gpus: Annotated[int | None, typer.Option(help="GPUs that generate; the others train.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(help="GPUs per generator.")] = None,
    gpu: Annotated[str | None, typer.Option(help="Chip, for example H100.")] = None,
    model: Annotated[str | None, typer.Option(help="Model, for example qwen2.5-7b.")] = None,
    batch: Annotated[int | None, typer.Option(help="Trajectories per training batch.")] = None,
    group: Annotated[int | None, typer.Option(help="Rollouts per prompt.")] = None,
    mean_length: Annotated[float | None, typer.Option(help="Mean response length, tokens.")] = None,
    length_cv: Annotated[float | None, typer.Option(help="Standard deviation over mean of the lengths.")] = None,
    length_cap: Annotated[int | None, typer.Option(help="Longest response, tokens.")] = None,
    turns: Annotated[float | None, typer.Option(help="Mean turns of a response, with a tool call between two.")] = None,
    tool_seconds: Annotated[float | None, typer.Option(help="Mean latency of a tool call, seconds.")] = None,
    mode: Annotated[str | None, typer.Option(help="colocated-sync, split-sync, one-step or async.")] = None,
    inter: Annotated[int | None, typer.Option(help="Bound on versions between last token and update.")] = None,
    intra: Annotated[int | None, typer.Option(help="Bound on weight updates during a rollout.")] = None,
    staleness: Annotated[
        float | None,
        typer.Option(
            help="A limit on the answer: the best split's mean staleness, in versions, is at most this; the plan's "
            "bound if not given. (sim --staleness is another thing: a lag that is put in.)"
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Trainer steps of a run; about 40,000 rollouts if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="Seeds of the comparison, which is paired.")] = 3,
    search: Annotated[bool, typer.Option("--search/--no-search", help="Look at other splits of the GPUs.")] = True,
    survives: Annotated[
        str | None, typer.Option(help="A method: train it at the learning level under this plan's staleness.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; the available cores if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="New folder for plan.json, timeline.png, schedule.json.")] = None,
) -> None:
    """Predict throughput, staleness and idle time of a plan, and say what would be better."""
    from entr_lab.cli.common import available_cores, console, prepare_out, progress_bar
    from entr_lab.errors import check_range

    if preset == "list":
        from entr_lab.cli.plan_table import print_presets

        print_presets(console())
        return
    flags = {
        "gpus": gpus,
        "generator_gpus": generator_gpus,
        "tensor_parallel": tensor_parallel,
        "hardware.gpu": gpu,
        "hardware.model": model,
        "batch.trajectories": batch,
        "batch.rollouts": group,
        "lengths.mean": mean_length,
        "lengths.cv": length_cv,
        "lengths.cap": length_cap,
        "tools.turns": turns,
        "tools.seconds": tool_seconds,
        "protocol.mode": mode,
        "protocol.max_inter": inter,
        "protocol.max_intra": intra,
    }
    chosen = _choose(config, preset, {key: value for key, value in flags.items() if value is not None})
    check_range("--seeds", seeds, low=1, high=100)
    check_range("--seed", seed, low=0)
    folder = prepare_out(out)
    from entr_lab.report.plan_study import study_plan

    with progress_bar("simulating the plan") as update:
        study = study_plan(
            chosen,
            steps=steps,
            seeds=range(seed, seed + seeds),
            bound=staleness,
            search=search,
            timeline=folder is not None,
            workers=workers or available_cores(),
            progress=update,
        )
    _answer(study, survives, workers or available_cores(), folder, as_json)


def _answer(study: PlanStudy, survives: str | None, workers: int, folder: Path | None, as_json: bool) -> None:
    """Print a study, and write it to a folder."""
    from entr_lab.cli.common import console, strict_json
    from entr_lab.cli.plan_table import print_study, study_data

    data = study_data(study)
    if survives is not None:
        from entr_lab.cli.plan_survival import survival

        data["survival"] = survival(study, survives, workers)
    if folder is not None:
        _write(folder, study, data)
    if as_json:
        print(strict_json(data))
        return
    screen = console()
    print_study(screen, study)
    if survives is not None:
        screen.print(data["survival"]["sentence"], highlight=False)
    if folder is not None:
        screen.print(f"Wrote plan.json, timeline.png and schedule.json to {folder}.", highlight=False, markup=False)


def _choose(config: Path | None, preset: str | None, flags: dict[str, Any]) -> Plan:
    """Return the plan of a file or preset with the flags put over it."""
    from entr_lab.errors import ConfigError, check_choice
    from entr_lab.sim.plan_config import parse_plan, read_plan_data
    from entr_lab.sim.plan_presets import PRESETS

    if (config is None) == (preset is None):
        raise ConfigError("give a plan: a TOML file, or --preset (try --preset dapo-math, or --preset list).")
    if config is not None:
        data = read_plan_data(config)
    else:
        assert preset is not None
        data = {"name": preset} | PRESETS[check_choice("preset", preset, PRESETS)]
    for key, value in flags.items():
        section, _, name = key.rpartition(".")
        if section:
            data[section] = dict(data.get(section, {})) | {name: value}
        else:
            data[name] = value
    if "batch.trajectories" in flags:
        data["batch"].pop("groups", None)
    if flags and preset is not None:
        data = {**data, "name": f"{preset} (changed)"}
        data.pop("published", None)  # it was measured under other inputs
    if "tools.turns" in flags and "max_turns" not in data["tools"]:
        data["tools"]["max_turns"] = max(1, round(4 * flags["tools.turns"]))
    return parse_plan(data)


def _write(folder: Path, study: PlanStudy, data: dict[str, Any]) -> None:
    from entr_lab.cli.common import write_json
    from entr_lab.report.timeline import write_timeline
    from entr_lab.sim.schedule import write_schedule

    write_json(folder / "plan.json", data)
    result = study.result
    write_timeline(folder / "timeline.png", result.timeline, title=f"{study.plan.name}, {result.mode}")
    write_schedule(folder / "schedule.json", study.plan.name, result.sample)
