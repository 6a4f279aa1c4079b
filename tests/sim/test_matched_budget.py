"""Calibration to one masked fraction, for every rule."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import DataError, RangeError
from entr_lab.rules import Fixed, KeepAll, make_rule, rule_names
from entr_lab.sim.matched_budget import calibrate, masked, matched_budget
from entr_lab.tokens import TokenBatch

RULES = [name for name in rule_names() if name != "keep-all"]


def batch(n: int = 3000, *, seed: int = 0, size: float = 0.3, lost: int = 0) -> TokenBatch:
    """Log-ratios of continuous, token-dependent size; the last `lost` tokens have no behaviour record."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    logp_mu = draw(n).log().clamp(-12.0, -0.01)
    entropy = 2 * draw(n) ** 3
    logp_pi = (logp_mu + size * torch.randn(n, generator=generator)).clamp(max=-1e-3)
    if lost:
        logp_mu[-lost:] = math.nan
    ids = torch.arange(n)
    return TokenBatch(
        logp_pi=logp_pi,
        logp_mu=logp_mu,
        entropy_mu=entropy,
        advantage=torch.where(draw(n) < 0.5, 1.0, -1.0),
        sequence=ids // 50,
        group=ids // 400,
        weight_version=torch.zeros_like(ids),
        target_version=3,
        collision_mu=(-entropy).exp(),
    )


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("budget", [0.0007, 0.01, 0.2])
def test_every_rule_hits_the_budget_within_one_token(name, budget):
    """And keeps doing so when the calibrated rule is applied again."""
    data = batch(lost=7)

    found = calibrate(make_rule(name), data, budget)

    usable = 3000 - 7
    assert abs(found.reached.n_masked - budget * usable) <= 1
    assert found.reached.n_tokens == usable
    assert masked(found.rule, data) == found.reached
    assert found.rule == make_rule(name).scaled(found.scale)


@pytest.mark.parametrize("name", RULES)
def test_a_larger_budget_never_loosens_the_threshold(name):
    """Scales fall as the budget grows."""
    data = batch(1000, seed=1)

    scales = [calibrate(make_rule(name), data, budget).scale for budget in (0.002, 0.01, 0.05, 0.2)]

    assert scales == sorted(scales, reverse=True)


@given(st.integers(0, 10**6), st.floats(0.001, 0.45))
@settings(max_examples=40, deadline=None)
def test_fixed_threshold_lies_between_the_order_statistics(seed, budget):
    """For |δ| the answer is known: the threshold separates the k largest values from the rest."""
    data = batch(500, seed=seed)
    wanted = round(budget * 500)
    if wanted == 0:
        return
    size = data.log_ratio.abs().double().sort(descending=True).values

    threshold = calibrate(Fixed(threshold=1.2), data, budget).rule.threshold

    assert size[wanted] <= threshold < size[wanted - 1] or size[wanted] == size[wanted - 1]


def test_the_removed_are_counted_by_hand():
    """Share and mean entropy of what a rule drops; unrecorded tokens count as neither."""
    data = batch(400, seed=2, lost=50)
    dropped = [i for i in range(350) if abs(float(data.log_ratio[i])) > 0.5]

    found = masked(Fixed(threshold=0.5), data)

    assert found.n_masked == len(dropped)
    assert found.masked_frac == len(dropped) / 350
    expected = sum(float(data.entropy_mu[i]) for i in dropped) / len(dropped)
    assert found.removed_entropy == pytest.approx(expected)
    assert math.isnan(masked(KeepAll(), data).removed_entropy)


def test_tied_scores_leave_together():
    """Ten equal |δ| cannot be split: the nearest reachable number is taken."""
    data = batch(100, seed=3)
    logp_mu = torch.full((100,), -1.0)
    logp_pi = logp_mu - torch.cat([torch.full((10,), 0.5), torch.linspace(0.0, 0.1, 90)])
    columns = {name: getattr(data, name) for name in ("entropy_mu", "advantage", "sequence", "group", "weight_version")}
    tied = TokenBatch(logp_pi=logp_pi, logp_mu=logp_mu, target_version=3, **columns)

    counts = {budget: calibrate(Fixed(), tied, budget).reached.n_masked for budget in (0.02, 0.08, 0.12)}

    assert counts == {0.02: 0, 0.08: 10, 0.12: 12}


def test_leading_runs_share_one_threshold():
    """Tokens of all runs are counted together."""
    one = batch(600, seed=4)
    stacked = TokenBatch(
        **{
            name: getattr(one, name).view(3, 200)
            for name in ("logp_pi", "logp_mu", "entropy_mu", "advantage", "sequence", "group", "weight_version")
        },
        target_version=3,
    )

    assert calibrate(Fixed(), stacked, 0.05).scale == calibrate(Fixed(), one, 0.05).scale


def test_thresholds_stay_frozen_afterwards():
    """On later batches the calibrated rule is applied as it is, and masks what it masks."""
    step0, later = batch(seed=5, size=0.1), {5: batch(seed=6, size=0.2), 30: batch(seed=7, size=0.5)}

    table = matched_budget({"a": make_rule("entr"), "b": Fixed()}, step0, later, 0.01)

    for fitted, found in table.values():
        assert found == {lag: masked(fitted.rule, data) for lag, data in later.items()}
        assert 0.01 < found[5].masked_frac < found[30].masked_frac


def test_impossible_budgets_are_refused():
    """Less than a token, outside (0, 1), a rule without a threshold, a batch without records."""
    data = batch(100, seed=8)
    with pytest.raises(DataError, match="less than one token"):
        calibrate(Fixed(), data, 1e-3)
    with pytest.raises(RangeError, match="budget"):
        calibrate(Fixed(), data, 1.0)
    with pytest.raises(DataError, match="no threshold of rule 'keep-all'"):
        calibrate(KeepAll(), data, 0.1)
    with pytest.raises(DataError, match="finite behaviour record"):
        masked(Fixed(), batch(100, lost=100))
