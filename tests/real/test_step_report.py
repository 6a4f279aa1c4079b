"""The meter: rates between batches, shares of time that sum to one, totals over the loop."""

from types import SimpleNamespace

import pytest

from entr_lab.real.step_report import StepMeter


def result(reward):
    return SimpleNamespace(train=SimpleNamespace(metrics={"reward_mean": reward}), attribution={"drift_rms": 0.1})


def batch(step):
    return SimpleNamespace(step=step, target_version=step)


def test_rates_are_between_batches_and_shares_sum_to_one():
    meter = StepMeter(10.0, ["w0"])
    meter.enter("w0", "generating", 12.0)
    meter.enter("trainer", "waiting", 12.0)
    meter.tokens = 400

    first = meter.report(batch(0), [], result(0.2), 14.0)
    meter.tokens = 100
    second = meter.report(batch(1), [], result(0.6), 15.0)

    assert first.metrics["rollout_tokens_per_second"] == pytest.approx(100.0)
    assert second.metrics["rollout_tokens_per_second"] == pytest.approx(100.0)
    assert first.metrics["steps_per_minute"] == pytest.approx(15.0)
    assert first.metrics["drift_rms"] == 0.1
    for report in (first, second):
        shares = [value for name, value in report.metrics.items() if name.startswith("time/w0/")]
        assert sum(shares) == pytest.approx(1.0)


def test_totals_are_over_all_batches():
    meter = StepMeter(0.0, ["w0"])
    for step, reward in enumerate([0.0, 0.5, 1.0]):
        meter.tokens = 60
        meter.report(batch(step), [], result(reward), 2.0 * (step + 1))

    totals = meter.totals()

    assert totals["seconds"] == pytest.approx(6.0)
    assert totals["steps_per_minute"] == pytest.approx(30.0)
    assert totals["rollout_tokens_per_second"] == pytest.approx(30.0)
    assert (totals["batches_now"], totals["reward_window"]) == (3, 1)
    assert totals["reward_first"] == pytest.approx(0.0)
