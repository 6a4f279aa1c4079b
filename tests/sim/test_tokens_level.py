"""The open loop at full vocabulary, on seeds that the specification did not use."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from entr_lab.errors import ConfigError, DataError, RangeError
from entr_lab.sim.logits import BaseLogits
from entr_lab.sim.mismatch import Mismatch
from entr_lab.sim.outliers import GROUPS
from entr_lab.sim.tokens_level import OpenLoopConfig, run_open_loop

SEEDS = (9101, 9102)
SMALL = OpenLoopConfig(
    base=BaseLogits(vocab=64),
    drifts=("feature",),
    positions=1000,
    calibration_tokens=4000,
    later_tokens=500,
    mismatch=Mismatch(record=1e-4),
)


@pytest.fixture(scope="module")
def full():
    """Reduced counts, full vocabulary."""
    return run_open_loop(OpenLoopConfig(positions=6144, calibration_tokens=32_768, later_tokens=8192), SEEDS)


def slopes(result):
    return {row.drift: row for row in result.slopes}


@pytest.mark.parametrize("drift", ["iid", "feature", "rank1"])
def test_square_root_law_holds_for_the_rms_only(drift, full):
    """RMS slope in [.45, .8] over every range, E|δ| slope in [1.0, 1.4]: the specification's safe intervals."""
    row = slopes(full)[drift]

    for estimate in (row.rms_low, row.rms_high, row.rms_all):
        assert 0.45 <= estimate.value <= 0.8
        assert estimate.low <= estimate.value <= estimate.high
    assert 1.0 <= row.abs_all.value <= 1.4


def test_local_gradient_is_too_steep(full):
    """Without shared parameters RMS δ falls about as H, twice the law's exponent, and E|δ| about as H²."""
    row = slopes(full)["local-gradient"]

    assert 0.9 <= row.rms_high.value <= 1.15
    assert 0.9 <= row.rms_all.value <= 1.4
    assert 1.7 <= row.abs_all.value <= 2.3


def test_outliers_need_shared_parameters(full):
    """At confident positions the rare token is ten times as deviant as an open choice; not so for local drift."""
    cells = {(row.cause, row.group): row.mean_z.value for row in full.outliers}

    for drift in ("iid", "feature", "rank1"):
        dominant, rest, open_choice = (cells[drift, group] for group in GROUPS)
        assert rest > 8 * open_choice > 8 * dominant
    _, rest, open_choice = (cells["local-gradient", group] for group in GROUPS)
    assert rest < 3 * open_choice


def test_only_the_record_error_makes_large_z_without_drift(full):
    """bf16 noise moves a rare token by hundredths of a nat, an error in its recorded probability by far more."""
    z = {row.cause: row.mean_z.value for row in full.outliers if row.group == GROUPS[1]}

    assert z["record error"] > 2 * z["bf16"]


def test_switch_jumps_rise_with_entropy(full):
    """From bin to bin, and about tenfold from H < .05 to H > 1."""
    sizes = [row.rms.value for row in full.jumps]

    assert all(before < after for before, after in pairwise(sizes))
    assert 6 < sizes[-1] / sizes[0] < 25


def budget(result, rule, lag, temperature=1.0):
    row = next(row for row in result.budget if row.rule == rule and row.calibrated)
    return next(cell for cell in row.cells if (cell.lag, cell.temperature) == (lag, temperature))


@pytest.mark.parametrize("temperature", [1.0, 1.4])
def test_matched_budget_ordering(temperature, full):
    """At lag 30 ENTR drifts less than IcePop, M2PO and KPop do, and removes tokens of lower entropy."""
    entr = budget(full, "entr (ε = 0.1)", 30, temperature)

    for rule in ("icepop", "m2po", "kpop"):
        other = budget(full, rule, 30, temperature)
        assert entr.masked_frac.value < other.masked_frac.value
        assert entr.removed_entropy.value < other.removed_entropy.value
    for rule in ("m2po", "kpop"):
        assert budget(full, rule, 30, temperature).masked_frac.value > 0.05


def test_differences_are_paired(full):
    """ENTR against itself is exactly 0; KPop's excess is the difference of the means, and it is significant."""
    assert budget(full, "entr (ε = 0.1)", 30).excess.high == 0
    kpop, entr = budget(full, "kpop", 30), budget(full, "entr (ε = 0.1)", 30)
    assert kpop.excess.value == pytest.approx(kpop.masked_frac.value - entr.masked_frac.value)
    assert kpop.excess.low > 0


def test_exact_identities(full):
    """The parts of δ telescope to 1e-12, and truncation leaks one constant per position."""
    assert full.telescoping_error < 1e-12
    assert full.leak.worst_error < 1e-12
    assert sum(row.share.value for row in full.attribution) == pytest.approx(1.0, abs=1e-9)


def test_a_seed_does_not_depend_on_the_others():
    """Two seeds together give the mean of each alone."""
    together, first, second = (run_open_loop(SMALL, seeds) for seeds in ([3, 4], [3], [4]))

    for both, one, two in zip(together.outliers, first.outliers, second.outliers, strict=True):
        assert both.share.value == pytest.approx((one.share.value + two.share.value) / 2, rel=1e-12)
        assert math.isnan(one.share.low)
    assert together.step0_frac.value == (first.step0_frac.value + second.step0_frac.value) / 2


def test_workers_change_nothing():
    """Seeds side by side give the numbers of seeds in turn, and torch keeps the threads that it had."""
    threads = torch.get_num_threads()

    in_turn, at_once = (run_open_loop(SMALL, [3, 4], workers=workers) for workers in (1, 2))

    assert repr(at_once) == repr(in_turn)  # repr, because NaN differs from itself
    assert torch.get_num_threads() == threads


def test_progress_counts_up_to_its_total():
    """Every chunk once, also with two workers."""
    calls = []

    run_open_loop(SMALL, [3, 5], progress=lambda done, total: calls.append((done, total)), workers=2)

    assert [done for done, _ in calls] == list(range(1, len(calls) + 1))
    assert {total for _, total in calls} == {len(calls)}


def test_an_empty_budget_is_refused():
    """Without mismatch the reference rule drops nothing at step 0, and nothing can be matched to it."""
    with pytest.raises(DataError, match="none of 4000 step-0 tokens of seed 3"):
        run_open_loop(replace(SMALL, mismatch=Mismatch(bf16=False)), [3])


def test_bad_seeds_are_refused():
    """None, twice the same, negative."""
    for seeds in ([], [1, 1]):
        with pytest.raises(ConfigError, match="seeds"):
            run_open_loop(SMALL, seeds)
    with pytest.raises(RangeError, match="seed"):
        run_open_loop(SMALL, [-1])
