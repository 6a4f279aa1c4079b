"""The comparison of the real path as Markdown, beside the simulator's and the prototype's: writes comparison.md.

    python bench/real/comparison_tables.py

Reads those of comparison-0.0003.json and comparison-0.0001.json that are beside it, and the simulator's presets of
bench/learning whose recorded probabilities are exact, as an engine's are: `drift` beside the demo's learning rate,
`exact-mu` beside the neutral one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Finals of the prototype without an engine (mean, half width; None where it had one seed): 160 updates, lag 30.
DEMO = {
    "sync-grpo": (0.937, 0.032),
    "async-grpo": (0.722, 0.118),
    "fixed": (0.600, 0.410),
    "icepop": (0.617, 0.229),
    "kpop": (0.769, 0.171),
    "m2po": (0.759, 0.253),
    "entr": (0.427, 0.815),
    "entr-outward": (0.858, 0.101),
}
NEUTRAL = {"sync-grpo": (0.87, None), "async-grpo": (0.85, None), "entr": (0.86, None)}


def read(path: Path) -> dict[str, Any]:
    """Return a result."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def interval(value: dict[str, Any] | None, *, sign: bool = False) -> str:
    """Return mean ± half width, or nothing."""
    if value is None or value["mean"] is None:
        return ""
    mean = f"{value['mean']:+.3f}" if sign else f"{value['mean']:.3f}"
    return mean if value["half"] is None else f"{mean} ± {value['half']:.3f}"


def metric(row: dict[str, Any], name: str, factor: float = 1.0) -> str:
    """Return the mean of a metric to three digits."""
    value = row["metrics"][name]["mean"]
    return "–" if value is None else f"{factor * value:.3g}"


def table(real: dict[str, Any], simulated: dict[str, Any], prototype: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of one comparison."""
    yield (
        "| method | final | − sync | lost | lowest after batch 20 | masked % | H removed | kept E[r²] | M2 "
        "| simulator: final | − sync | prototype: final |"
    )
    yield "|" + "---|" * 12
    other = {row["name"]: row for row in simulated["comparison"]["rows"]}
    for row in real["comparison"]["rows"]:
        name = row["name"]
        lowest = []
        for seed in real["seeds"]:
            after = real["evaluated_after"][f"{name}-{seed}"]
            rewards = real["rewards"][f"{name}-{seed}"]
            lowest.append(min(r for r, at in zip(rewards, after, strict=True) if at > 20))
        mean, half = prototype.get(name, (None, None))
        past = "" if mean is None else f"{mean:.3f}" + ("" if half is None else f" ± {half:.3f}")
        lost = row["n_collapsed"] + row["n_non_finite"]
        cells = (
            name,
            interval(row["final"]),
            interval(row["to_sync"], sign=True),
            f"{lost}/{row['n_runs']}",
            " ".join(f"{value:.2f}" for value in lowest),
            metric(row, "masked_frac", 100),
            metric(row, "removed_entropy"),
            metric(row, "kept_ratio_sq"),
            metric(row, "all_m2"),
            interval(other[name]["final"]),
            interval(other[name]["to_sync"], sign=True),
            past,
        )
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield "Verdicts:"
    yield ""
    for row in real["comparison"]["rows"]:
        simulator = other[row["name"]]["sentence"]
        yield f"- {row['name']}: {row['sentence']}. Simulator: {simulator}."


def section(name: str, title: str, preset: str, prototype: dict[str, Any]) -> Iterable[str]:
    """Yield one learning rate's section; nothing if it has not been made."""
    if not (HERE / name).exists():
        return
    real, simulated = read(HERE / name), read(HERE.parent / "learning" / f"{preset}.json")
    made = real["provenance"]
    yield f"## {title}"
    yield ""
    yield (
        f"Learning rate {real['learning_rate']:g}, seeds {', '.join(map(str, real['seeds']))}, {real['batches']} "
        f"batches, commit {made.get('commit', '')[:7]}; simulator: preset `{preset}`, seeds "
        f"{simulated['seeds'][0]}–{simulated['seeds'][-1]}."
    )
    for commit, runs in made.get("other_commits", {}).items():
        yield f"Of commit {commit}: {', '.join(runs)}."
    yield ""
    yield from table(real, simulated, prototype)
    yield ""


def main() -> None:
    lines = [
        "# Forced staleness 30 on the real path",
        "",
        "vLLM in bfloat16 against a float32 trainer, mode exact (22 + 8; sync in mode sync), noted-sum, 8 × 8 a batch.",
        "Made by `python bench/real/comparison.py --rate RATE --parallel 2`, shown by `comparison_tables.py`.",
        "final: mean of the last fifth of the evaluations, each of 128 held-out rollouts; ± is a 95 % t-interval over "
        "seeds; differences are paired by seed and not corrected for their number. lost: collapsed or broken off.",
        "The prototype had no engine in the loop, its own model and 160 updates; its sign-aware ENTR with truncation "
        "stands beside `entr-outward`, and its neutral row is one seed.",
        "What follows from this is said in [choosing a rule](../../docs/choosing-a-rule.md).",
        "",
        *section("comparison-0.0003.json", "The demo's learning rate: drift", "drift", DEMO),
        *section("comparison-0.0001.json", "The neutral learning rate", "exact-mu", NEUTRAL),
    ]
    path = HERE / "comparison.md"
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(path)


if __name__ == "__main__":
    main()
