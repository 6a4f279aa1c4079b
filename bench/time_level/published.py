"""Predicted beside published speed-ups: python bench/time_level/published.py

For every preset with a published ratio: the ratio predicted from chips and model with the general constants, and,
where the source gives the phases of its synchronous step, the ratio predicted after calibrating two scales on that
step alone. Constants are set once in entr_lab/sim/plan_hardware.py; nothing is fitted to a ratio. Three seeds, paired.
Writes published.json and published.md beside itself.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from entr_lab.report.plan_study import Prediction, study_plan
from entr_lab.sim.plan_hardware import CONSTANTS
from entr_lab.sim.plan_presets import PRESETS, preset
from entr_lab.sim.plan_search import steps_for

HERE = Path(__file__).parent
SEEDS, WORKERS = 3, 2
WITHIN = 0.2
"""A prediction within 20 % of the published ratio (or its span) counts as met; any other is a miss."""


def verdict(row: Prediction) -> str:
    assert row.error is not None
    return "met" if abs(row.error) <= WITHIN else "MISS"


def main() -> None:
    rows = []
    lines = [
        "| plan | predicted | speed-up (95 %, 3 seeds) | published | error | verdict | sync s (published) | "
        "async s (published) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    inputs = ["| plan | source | given by the source | assumed here |", "|---|---|---|---|"]
    for name in PRESETS:
        plan = preset(name)
        published = plan.published
        if published is None or published.speedup is None:
            continue
        steps = steps_for(plan, 20_000, low=20)
        study = study_plan(plan, steps=steps, seeds=range(SEEDS), search=False, workers=WORKERS)
        span = f"{published.speedup:.2f}" + (f"–{published.speedup_high:.2f}" if published.speedup_high else "")
        for row in study.predictions:
            rows.append({"plan": name, "published": published.model_dump(), **asdict(row), "verdict": verdict(row)})
            lines.append(
                f"| {name} | {row.label} | {row.speedup.mean:.2f} ± {row.speedup.half:.2f} | {span} | "
                f"{row.error:+.0%} | "
                f"{verdict(row)} | {row.sync_seconds:.0f} ({published.sync_seconds or '–'}) | "
                f"{row.async_seconds:.0f} ({published.async_seconds or '–'}) |"
            )
            print(lines[-1], flush=True)
        inputs.append(f"| {name} | {published.source} | {published.given} | {published.assumed} |")
    met = sum(row["verdict"] == "met" for row in rows)
    counts = f"{met} of {len(rows)} predictions are within {WITHIN:.0%} of the published ratio."
    head = [
        "# Predicted beside published speed-ups",
        "",
        "Command: `python bench/time_level/published.py`.",
        "Published numbers are their owners'.",
        counts,
        "",
    ]
    text = "\n".join([*head, *lines, "", "## Inputs", "", *inputs, ""])
    (HERE / "published.md").write_text(text, encoding="utf-8")
    record = {"constants": asdict(CONSTANTS), "rows": rows}
    (HERE / "published.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(counts)


if __name__ == "__main__":
    main()
