"""Survival: the learning level is trained under the plan's own lags."""

from __future__ import annotations

import pytest

from entr_lab.cli.plan_survival import survival
from entr_lab.errors import EntrLabError
from entr_lab.report.plan_study import study_plan
from entr_lab.sim.plan_config import parse_plan
from entr_lab.sim.time_stats import mean_of
from tests.sim.test_plan_search import SMALL


@pytest.mark.slow
def test_the_lags_are_the_plans_and_the_references_are_there() -> None:
    study = study_plan(parse_plan(SMALL), steps=30, seeds=(0,), search=False)
    data = survival(study, "entr", workers=1, seeds=1, updates=4)
    assert [row["method"] for row in data["rows"]] == ["sync-grpo", "async-grpo", "entr"]
    assert data["max_lag"] <= max(study.result.token_staleness)
    assert data["mean_lag"] == pytest.approx(mean_of(study.result.token_staleness), rel=0.3, abs=0.3)
    assert "1 seeds, 4 updates" in data["sentence"]


def test_an_unknown_method_is_refused() -> None:
    study = study_plan(parse_plan(SMALL), steps=8, seeds=(0,), search=False)
    with pytest.raises(EntrLabError, match="entr"):
        survival(study, "entrr", workers=1)
