"""Does a rule's one-step error (E3) predict what it does in training? Spearman over rules, on the lab's own runs.

    python bench/theory/error_against_training.py

Errors: ‖bias‖² + variance/N by enumeration at V = 128, 1,000 positions, N = 3072 (the tokens of one simulated
update), i.i.d. drift of two sizes, advantages ±1 at random, every rule at its default. Outcomes: mean final reward of
`bench/learning/*.json`. Only rules that both have; −1 would mean that the error ranks them perfectly.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from entr_lab.theory.divergence import normalise, tilt
from entr_lab.theory.masking import WEIGHTS, enumerate_tokens, estimator_moments, mean_squared_error
from entr_lab.theory.thresholds import rank_correlation

PRESETS = {"exact-mu": 0.2, "drift": 1.0}
"""Presets with an exact record, and the scale of the logit drift in nats that stands for each."""
METHODS = {"async-grpo": "keep-all", **{name: name for name in ("fixed", "icepop", "kpop", "entr", "entr-outward")}}
POSITIONS, VOCABULARY, SAMPLES = 1000, 128, 3072


def errors(scale: float) -> dict[str, float]:
    """Mean one-step error of each method's weight."""
    rng = np.random.default_rng(0)
    logp = normalise(3 * rng.standard_normal((POSITIONS, VOCABULARY)))
    delta, _ = tilt(logp, scale * rng.standard_normal(logp.shape))
    tokens = enumerate_tokens(logp, logp + delta, rng.choice([-1.0, 1.0], logp.shape))
    found = {}
    for method, name in METHODS.items():
        rule = WEIGHTS[name]
        moments = estimator_moments(tokens, rule.weight(tokens, rule.default))
        found[method] = float(np.mean(mean_squared_error(moments, SAMPLES)))
    return found


def main() -> None:
    """Print one row per preset."""
    for preset, scale in PRESETS.items():
        path = Path(__file__).parents[1] / "learning" / f"{preset}.json"
        rows = json.loads(path.read_text(encoding="utf-8"))["comparison"]["rows"]
        finals = {row["name"]: row["final"]["mean"] for row in rows}
        error = errors(scale)
        rho, p = rank_correlation([error[name] for name in METHODS], [finals[name] for name in METHODS])
        listed = ", ".join(f"{name} {error[name]:.3g}/{finals[name]:.3f}" for name in METHODS)
        print(f"{preset} (drift {scale:g}): Spearman {rho:+.2f}, p = {p:.2f} over {len(METHODS)} rules; {listed}")


if __name__ == "__main__":
    main()
