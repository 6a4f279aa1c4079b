"""Whether a method survives the staleness that a plan produces: the plan's schedule, trained at the learning level."""

from __future__ import annotations

from typing import Any

from entr_lab.report.plan_study import PlanStudy

__all__ = ["survival"]

_ROLLOUT_BLOCKS = 64
_UPDATES = 150


def survival(study: PlanStudy, method: str, workers: int, *, seeds: int = 4, updates: int = _UPDATES) -> dict[str, Any]:
    """Train `method`, the synchronous and the unmasked reference under the lags of the plan.

    A version is an optimiser step in both levels; what differs is everything else (a small policy, a small task), so
    the answer orders methods rather than predicting the plan's reward.

    Raises:
        ConfigError: no such method.
    """
    import numpy as np

    from entr_lab.cli.common import progress_bar
    from entr_lab.objective import parse_method
    from entr_lab.report.comparison import compare
    from entr_lab.report.learning import method_runs
    from entr_lab.sim.lag import LagTable
    from entr_lab.sim.learning_level import run_learning
    from entr_lab.sim.scenario import LagSettings, make_scenario
    from entr_lab.sim.schedule import Schedule

    schedule = Schedule(plan=study.plan.name, rollouts=study.result.sample)
    names = dict.fromkeys(["sync-grpo", "async-grpo", method])
    methods = [parse_method(name) for name in names]
    scenario = make_scenario()
    rng = np.random.default_rng(study.seeds[0])
    table = schedule.lags(_ROLLOUT_BLOCKS * scenario.rollouts, scenario.task.horizon, rng)
    scenario = make_scenario(lag=LagSettings(table=LagTable(table)), updates=updates)
    numbers = list(range(seeds))
    with progress_bar(f"training under the plan's staleness ({len(methods)} methods × {seeds} seeds)") as update:
        result = run_learning(scenario, methods, numbers, workers=min(workers, seeds), progress=update)
    rows = compare(method_runs(methods, numbers, result.runs)).rows
    row = next(row for row in rows if row.name == methods[-1].name)
    lags = f"mean {schedule.mean_lag:.1f}, oldest token {schedule.max_lag} versions"
    return {
        "method": row.name,
        "verdict": row.verdict,
        "seeds": numbers,
        "updates": updates,
        "mean_lag": schedule.mean_lag,
        "max_lag": schedule.max_lag,
        "rows": [{"method": row.name, "verdict": row.verdict, "final": row.final} for row in rows],
        "sentence": f"Under this plan's staleness ({lags}), {row.name}: {row.sentence} "
        f"({seeds} seeds, {updates} updates of a small policy).",
    }
