"""What `entr-lab plan` shows: labels of other people's numbers, verdicts, and data that is strict JSON."""

from __future__ import annotations

import io
import json

from rich.console import Console

from entr_lab.cli.common import strict_json
from entr_lab.cli.plan_table import describe, print_study, study_data
from entr_lab.report.plan_study import PlanStudy, study_plan
from entr_lab.sim.plan_config import parse_plan
from tests.sim.test_plan_search import SMALL


def shown(study: PlanStudy) -> str:
    text = io.StringIO()
    print_study(Console(file=text, width=120), study)
    return text.getvalue()


def test_published_numbers_carry_their_source_and_predictions_their_error() -> None:
    theirs = {"source": "somebody's table 7", "given": "the chips", "assumed": "the lengths", "speedup": 1.25}
    text = shown(study_plan(parse_plan(SMALL | {"published": theirs}), steps=8, seeds=(0, 1)))
    for piece in ("published: somebody's table 7", "1.25×", "gives: the chips", "Assumed here: the lengths", "%"):
        assert piece in text


def test_a_gain_that_may_be_none_is_said_to_be_not_distinguishable() -> None:
    slow_trainer = SMALL | {"hardware": {"gpu": "H100", "model": "qwen3-8b", "trainer_scale": 50.0}}
    text = shown(study_plan(parse_plan(slow_trainer), steps=8, seeds=(0, 1)))
    assert "not distinguishable" in text


def test_no_split_within_the_bound_is_said() -> None:
    text = shown(study_plan(parse_plan(SMALL), steps=8, seeds=(0,), bound=0.0))
    assert "No split keeps" in text
    assert "staler than 0" in text


def test_the_data_is_strict_json_without_samples() -> None:
    data = json.loads(strict_json(study_data(study_plan(parse_plan(SMALL), steps=8, seeds=(0,), timeline=True))))
    assert "timeline" not in data["result"]
    assert "sample" not in data["result"]
    assert data["plan"]["gpus"] == 8


def test_a_plan_is_described_with_its_tools_and_bound() -> None:
    text = describe(parse_plan(SMALL | {"tools": {"turns": 3.0, "max_turns": 5, "seconds": 2.0}}))
    assert "3 turns with tools of 2 s" in text
    assert "within 2 + 2 versions" in text
