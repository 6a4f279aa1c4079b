"""Presets: all run, and what they say of published numbers is what the sources say."""

from __future__ import annotations

import pytest

from entr_lab.errors import UnknownNameError
from entr_lab.sim.plan_presets import PRESETS, preset
from entr_lab.sim.plan_search import synchronous_twin
from entr_lab.sim.time_level import simulate


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_and_its_twin_make_a_step(name: str) -> None:
    plan = preset(name)
    assert plan.name == name
    small = {"groups": 2, "rollouts": 2}
    data = plan.model_dump() | {"batch": small, "baseline": plan.baseline.model_dump() | {"groups": None}}
    data["protocol"] = data["protocol"] | {"buffer_groups": None, "max_in_flight": None}
    case = type(plan).model_validate(data)
    assert simulate(case, steps=2).mode == plan.protocol.mode
    assert simulate(synchronous_twin(case), steps=2).mode == "colocated-sync"


def test_the_papers_tasks_carry_the_papers_staleness() -> None:
    lags = {name: (preset(name).protocol.max_intra, preset(name).protocol.max_inter) for name in PRESETS}
    assert lags["search-r1"] == (2, 9)
    assert lags["browsecomp-plus"] == (5, 1)
    assert lags["gsm8k-tools"] == (5, 13)
    assert lags["dapo-math"] == (8, 10)


def test_every_published_number_has_a_source_and_names_its_assumptions() -> None:
    for name in PRESETS:
        published = preset(name).published
        assert published is not None
        assert published.source
        assert published.given
        assert published.assumed
        if published.sync_seconds and published.async_seconds and published.speedup and name != "verl-one-step-off":
            # a span of ratios is over several lengths of run; one ratio is that of the step times
            high = published.speedup_high or published.speedup
            assert 0.9 * published.speedup < published.sync_seconds / published.async_seconds < 1.11 * high


def test_the_row_where_overlap_was_slower_is_there() -> None:
    published = preset("nemo-rl-qwen3-30b-gb200").published
    assert published is not None
    assert published.speedup == pytest.approx(0.73, abs=0.01)


def test_unknown_presets_are_guessed() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'laptop'"):
        preset("labtop")
