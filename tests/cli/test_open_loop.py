"""Printing of the open loop."""

import io
import json
import re

import pytest
from rich.console import Console

from entr_lab.cli.common import strict_json
from entr_lab.cli.open_loop import print_open_loop, to_json
from entr_lab.sim.logits import BaseLogits
from entr_lab.sim.mismatch import Mismatch
from entr_lab.sim.tokens_level import OpenLoopConfig, run_open_loop


@pytest.fixture(scope="module")
def result():
    config = OpenLoopConfig(
        base=BaseLogits(vocab=64),
        positions=1000,
        calibration_tokens=4000,
        later_tokens=500,
        mismatch=Mismatch(record=1e-4),
    )
    return run_open_loop(config, [3, 8])


def test_every_question_has_its_table(result):
    """Titles, seeds, and no bracket that the terminal took for markup."""
    stream = io.StringIO()

    print_open_loop(result, Console(file=stream, width=120))

    text = " ".join(stream.getvalue().split())
    for part in (
        "seeds 3, 8",
        "slope of log size against log H",
        "Low-entropy outliers",
        "Jump of log μ",
        "Matched budget at base entropy",
        "raised entropy (temperature 1.4)",
        "What δ is made of at intra 8, inter 22",
        "Top-p leak",
        "√E[δ²]",
        "E[part · δ]/E[δ²]",
    ):
        assert part in text, part
    assert not re.search(r"\bnan\b", text)


def test_json_is_strict_and_complete(result):
    """What is not a number is null, and every table is there."""
    data = json.loads(strict_json(to_json(result)))

    assert data["seeds"] == [3, 8]
    assert [row["drift"] for row in data["slopes"]] == list(result.config.drifts)
    assert data["jumps"][-1]["high"] is None
    assert len(data["budget"]) == len(result.budget)
    assert data["budget"][0]["cells"][0]["masked_frac"]["value"] == result.budget[0].cells[0].masked_frac.value
