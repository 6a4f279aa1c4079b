"""How `entr-lab plan` prints a study."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from entr_lab.report.intervals import Interval
from entr_lab.report.plan_study import PlanStudy
from entr_lab.sim.plan_presets import PRESETS, preset
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.time_stats import TimeResult, mean_of, quantile_of

__all__ = ["describe", "print_presets", "print_study", "study_data"]

_WHY = {
    "generating": "decoding",
    "training": "the trainer's turn (staleness bound)",
    "stragglers": "waits for the batch's last rollouts",
    "weights": "weight update",
    "tools": "its rollouts are in tools",
    "failed": "down",
    "worker-version": "may not take work before it updates",
    "generation": "waits for rollouts",
    "old-groups": "waits for groups that would become too stale",
}
_WHY_TRAINER = _WHY | {"training": "training"}


def print_study(screen: Console, study: PlanStudy) -> None:
    """Print inputs, comparison, idle account, staleness, splits."""
    plan = study.plan
    screen.print(f"[bold]{plan.name}[/bold]: {describe(plan)}", highlight=False)
    _print_comparison(screen, study)
    _print_idle(screen, study.result)
    _print_staleness(screen, study)
    if study.grid:
        _print_grid(screen, study)
    if study.more is not None:
        verdict = "" if study.more.excludes_zero else " (not distinguishable from no gain)"
        screen.print(f"One generator more brings {_percent(study.more)}{verdict}.", highlight=False)


def print_presets(screen: Console) -> None:
    """Print a row per named plan."""
    table = Table(title="Plans with a name; try entr-lab plan --preset NAME", title_justify="left", show_lines=True)
    for header in ("name", "GPUs", "in short", "source"):
        table.add_column(header, justify="right" if header == "GPUs" else "left", overflow="fold")
    for name in PRESETS:
        plan = preset(name)
        what = plan.hardware.model if plan.hardware else "measured costs"
        bound = f" {plan.protocol.max_inter} + {plan.protocol.max_intra}" if plan.protocol.mode == "async" else ""
        tools = f", {plan.tools.turns:g} turns" if plan.tools.max_turns > 1 else ""
        short = f"{what}, {plan.batch.size} × {plan.batch.rollouts} of {plan.lengths.mean:g} tokens{tools}, "
        gpus = f"{plan.gpus} {plan.hardware.gpu if plan.hardware else ''}".strip()
        table.add_row(name, gpus, short + plan.protocol.mode + bound, plan.published.source if plan.published else "–")
    screen.print(table)
    screen.print("In short: model, groups × rollouts of a batch, mean length, mode, bound (inter + intra).")


def describe(plan: Plan) -> str:
    """Return the plan's inputs in one line."""
    chips = f"{plan.gpus} × {plan.hardware.gpu}, {plan.hardware.model}" if plan.hardware else f"{plan.gpus} devices"
    split = "shared in turn" if plan.colocated else f"{plan.generator_gpus} generate, {plan.trainer_gpus} train"
    lengths, protocol = plan.lengths, plan.protocol
    spread = f", cv {lengths.cv:g}" if lengths.kind == "log-normal" else ""
    parts = [
        f"{chips} ({split}, {plan.generators} generators)",
        f"batch {plan.batch.size} groups × {plan.batch.rollouts}",
        f"{lengths.kind} lengths, mean {lengths.mean:g}{spread}, cap {lengths.cap}",
    ]
    if plan.tools.max_turns > 1:
        parts.append(f"{plan.tools.turns:g} turns with tools of {plan.tools.seconds:g} s")
    bound = f" within {protocol.max_inter} + {protocol.max_intra} versions" if protocol.mode == "async" else ""
    return "; ".join([*parts, f"{protocol.mode}{bound}"]) + "."


def _print_comparison(screen: Console, study: PlanStudy) -> None:
    table = Table(title="Throughput", title_justify="left")
    for header in ("mode", "s/step", "tok/s", "tok/s/GPU", "gen busy", "seqs/gen", "train busy"):
        table.add_column(header, justify="left" if header == "mode" else "right", no_wrap=True)
    for result in (study.sync, study.result):
        if result is not None:
            table.add_row(
                result.mode,
                f"{result.seconds_per_step:.4g}",
                f"{result.tokens_per_second:,.0f}",
                f"{result.tokens_per_gpu_second:,.1f}",
                f"{result.generator_busy:.0%}",
                f"{result.generator_fill:.1f}",
                f"{result.trainer_busy:.0%}",
            )
    screen.print(table)
    published = study.plan.published
    if study.predictions:
        table = Table(title="Speed-up over the synchronous twin on the same GPUs", title_justify="left")
        for header in ("source", "sync s/step", "async s/step", "speed-up", "error"):
            table.add_column(header, justify="left" if header == "source" else "right", overflow="fold")
        for row in study.predictions:
            error = "–" if row.error is None else f"{row.error:+.0%}"
            seconds = (f"{row.sync_seconds:.4g}", f"{row.async_seconds:.4g}")
            table.add_row(f"predicted, {row.label}", *seconds, f"{row.speedup}×", error)
        if published is not None:
            table.add_row(f"published: {published.source}", *_published_row(study.plan), "")
        screen.print(table)
    if published is not None:
        screen.print(f"The source gives: {published.given}. Assumed here: {published.assumed}.", highlight=False)


def _published_row(plan: Plan) -> tuple[str, str, str]:
    published = plan.published
    assert published is not None
    low, high = published.speedup, published.speedup_high
    ratio = "none" if low is None else f"{low:.2f}×" if high is None else f"{low:.2f}–{high:.2f}×"
    seconds = [f"{value:.4g}" if value else "–" for value in (published.sync_seconds, published.async_seconds)]
    return seconds[0], seconds[1], ratio


def _print_idle(screen: Console, result: TimeResult) -> None:
    table = Table(title=f"Where the time went ({result.mode}; sums to the wall-clock)", title_justify="left")
    for header in ("resource", "state", "share", "seconds"):
        table.add_column(header, justify="right" if header in ("share", "seconds") else "left")
    for kind, names in (("generator", _WHY), ("trainer", _WHY_TRAINER)):
        seconds = result.idle(kind)
        total = sum(seconds.values())
        for state, spent in sorted(seconds.items(), key=lambda item: -item[1]):
            table.add_row(
                f"{kind}s" if kind == "generator" else kind,
                names.get(state, state),
                f"{spent / total:.1%}",
                f"{spent:,.1f}",
            )
    screen.print(table)


def _print_staleness(screen: Console, study: PlanStudy) -> None:
    result, published = study.result, study.plan.published
    table = Table(title="Staleness of what is trained on, in versions", title_justify="left")
    for header in ("lag", "mean", "p99", "max", "configured by the source"):
        table.add_column(header, justify="left" if header == "lag" else "right")
    sources = {"inter": published.inter, "intra": published.intra} if published else {}
    for name, counts in (("inter", result.inter), ("intra", result.intra), ("token", result.token_staleness)):
        theirs = sources.get(name)
        table.add_row(
            name,
            f"{mean_of(counts):.2f}",
            str(quantile_of(counts, 0.99)),
            str(max(counts)),
            "–" if theirs is None else str(theirs),
        )
    screen.print(table)
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(result.groups_dropped.items()))
    if dropped:
        screen.print(f"Groups dropped: {dropped}.", highlight=False)
        for row in result.drop_bias:
            if row.name in ("difficulty", "latency"):
                name = "length asked for" if row.name == "difficulty" else "latency"
                screen.print(
                    f"Trained against dispatched, {name}: {row.trained:.4g} to {row.dispatched:.4g}, {row.verdict}."
                )


def _print_grid(screen: Console, study: PlanStudy) -> None:
    judged = f"one seed, {study.grid[0].steps} steps each"
    table = Table(title=f"Split of {study.plan.gpus} GPUs ({judged})", title_justify="left")
    for header in ("generate : train", "tokens/s", "mean staleness", "generators busy", "trainer busy", ""):
        table.add_column(header, justify="right")
    for point in study.grid:
        marks = ["best"] if point is study.best else []
        marks += ["this plan"] if point.plan.generator_gpus == study.plan.generator_gpus else []
        marks += [f"staler than {study.bound:g}"] if point.staleness_mean > study.bound else []
        table.add_row(
            f"{point.plan.generator_gpus} : {point.plan.trainer_gpus}",
            f"{point.tokens_per_second:,.0f}",
            f"{point.staleness_mean:.2f}",
            f"{point.generator_busy:.0%}",
            f"{point.trainer_busy:.0%}",
            ", ".join(marks),
        )
    screen.print(table)
    if study.best is None:
        screen.print(
            f"No split keeps the mean staleness within {study.bound:g} versions; raise --staleness.", highlight=False
        )


def _percent(gain: Interval) -> str:
    half = "" if gain.half != gain.half else f" ± {100 * gain.half:.1f}"
    return f"{100 * gain.mean:+.1f}{half} %"


def study_data(study: PlanStudy) -> dict[str, Any]:
    """Return a study as plain data, without samples and timelines."""

    def brief(result: TimeResult | None) -> dict[str, Any] | None:
        if result is None:
            return None
        names = [name for name in TimeResult.__dataclass_fields__ if name not in ("sample", "timeline")]
        return {name: getattr(result, name) for name in names}

    return {
        "plan": study.plan.model_dump(mode="json"),
        "steps": study.steps,
        "seeds": study.seeds,
        "result": brief(study.result),
        "sync": brief(study.sync),
        "predictions": study.predictions,
        "grid": [
            {
                "generator_gpus": point.plan.generator_gpus,
                "trainer_gpus": point.plan.trainer_gpus,
                "steps": point.steps,
                "tokens_per_second": point.tokens_per_second,
                "staleness_mean": point.staleness_mean,
                "staleness_p99": point.staleness_p99,
                "staleness_max": point.staleness_max,
            }
            for point in study.grid
        ],
        "bound": study.bound,
        "best_generator_gpus": study.best.plan.generator_gpus if study.best else None,
        "one_more_generator": study.more,
    }
