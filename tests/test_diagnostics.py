"""Every metric against its naive twin, over exactly the tokens that its name says."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.diagnostics import METRICS, diagnose, masked_sequence_frac
from entr_lab.errors import ShapeError
from entr_lab.objective import get_method, policy_loss
from entr_lab.rules import Entr, Fixed, KeepAll
from entr_lab.testing import adversarial_batch
from entr_lab.tokens import TokenBatch
from tests import reference
from tests.rules.cases import golden
from tests.strategies import batches, from_ratios, with_gradient


def _close(found: dict[str, torch.Tensor], expected: dict[str, float]) -> None:
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), name


@given(batches(dtypes=(torch.float64,)), st.sampled_from(("entr", "entr-outward", "icepop", "m2po")))
def test_every_metric_equals_its_naive_twin(batch: TokenBatch, name: str) -> None:
    result = policy_loss(get_method(name), batch)
    found = diagnose(batch, result.keep, result.weight)
    assert list(found) == list(METRICS)
    expected = reference.metrics(reference.rows(batch), result.keep.tolist(), result.weight.tolist())
    assert set(expected) == set(METRICS)
    _close(found, expected)


def test_golden_effective_sample_size() -> None:
    record = golden("effective_sample_size")
    batch = from_ratios([math.log(weight) for weight in record["weights"]], logp_mu=[-3.0] * 4)
    found = diagnose(batch, torch.ones(4, dtype=torch.bool))
    assert found["all_ess_frac"].item() == pytest.approx(record["ess_frac"], abs=1e-6)
    assert 4 * found["all_ess_frac"].item() == pytest.approx(record["ess"], abs=1e-5)
    assert found["all_chi2"].item() == pytest.approx(record["chi2"], abs=1e-9)


def test_metrics_before_the_rule_do_not_depend_on_the_decision() -> None:
    batch = adversarial_batch(3, 300)
    wide, narrow = (diagnose(batch, Fixed(threshold=c).keep(batch)) for c in (5.0, 0.01))
    for name in METRICS:
        if name.startswith("all_") or name == "unrecorded_frac":
            assert torch.equal(wide[name], narrow[name])
    assert wide["kept_m2"] > narrow["kept_m2"]
    assert wide["masked_frac"] < narrow["masked_frac"]


def test_keeping_all_makes_kept_equal_to_all() -> None:
    batch = adversarial_batch(3, 300)
    found = diagnose(batch, KeepAll().keep(batch))
    for name in METRICS:
        if name.startswith("kept_"):
            assert torch.equal(found[name], found[name.replace("kept_", "all_")])
    assert found["removed_entropy"].isnan()  # an average over nothing is not 0


def test_rejected_tokens_are_split_by_direction() -> None:
    batch = from_ratios([3.0, 3.0, -3.0, 3.0, 0.1], advantage=[1.0, -1.0, -1.0, 0.0, 1.0])
    found = diagnose(batch, Fixed().keep(batch))
    assert found["masked_frac"].item() == pytest.approx(0.8)
    assert found["removed_outward_frac"].item() == pytest.approx(0.5)
    assert found["removed_inward_frac"].item() == pytest.approx(0.5)


def test_unrecorded_tokens_count_as_masked_and_in_nothing_else() -> None:
    batch = from_ratios([0.0, 0.0, math.nan, 0.5], logp_mu=[-1.0, math.nan, -1.0, -1.0])
    found = diagnose(batch, KeepAll().keep(batch))
    assert found["masked_frac"].item() == 0.5
    assert found["unrecorded_frac"].item() == 0.25  # the third has a record; its log π is what is missing
    assert found["all_m2"].item() == pytest.approx(0.125)
    assert found["removed_entropy"].isnan()


def test_a_wrong_record_makes_the_effective_sample_size_small_not_undefined() -> None:
    """Engines clamp log 0 to −9999; e^δ is then infinite even in float64."""
    batch = from_ratios([9998.0, 0.0, 0.0, 0.0], logp_mu=[-9999.0, -1.0, -1.0, -1.0])
    found = diagnose(batch, torch.ones(4, dtype=torch.bool))
    assert found["all_ess_frac"].item() == pytest.approx(0.25)
    assert found["all_ratio_sq"].item() == math.inf
    assert found["all_m2"].item() == pytest.approx(9998.0**2 / 4)


def test_small_log_ratios_keep_their_digits() -> None:
    found = diagnose(from_ratios([1e-6, -1e-6]), torch.ones(2, dtype=torch.bool))
    assert found["all_kl_k3"].item() == pytest.approx(5e-13, rel=1e-3)
    assert found["all_ratio_dev"].item() == pytest.approx(1e-6, rel=1e-6)


def test_runs_have_their_own_metrics() -> None:
    batch = adversarial_batch(7, 50, runs=(3,))
    keep = Entr().keep(batch)
    both = diagnose(batch, keep)
    for run in range(3):
        alone = diagnose(batch.runs(run), keep[run])
        for name, value in both.items():
            assert value.shape == torch.Size([3])
            torch.testing.assert_close(value[run], alone[name], equal_nan=True)


def test_metrics_carry_no_gradient_and_leave_the_batch_alone() -> None:
    batch = with_gradient(adversarial_batch(7, 50))
    before = batch.logp_mu.clone()
    found = diagnose(batch, Entr().keep(batch), torch.ones(50))
    assert not any(value.requires_grad for value in found.values())
    assert torch.equal(before.nan_to_num(), batch.logp_mu.nan_to_num())


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=20))
def test_share_of_sequences_with_a_dropped_token(tokens: list[tuple[int, bool]]) -> None:
    sequence, keep = [ident for ident, _ in tokens], [kept for _, kept in tokens]
    batch = from_ratios([0.0] * len(tokens), sequence=sequence)
    expected = reference.masked_sequence_frac(sequence, keep)
    assert masked_sequence_frac(batch, torch.tensor(keep)).item() == pytest.approx(expected)


def test_share_of_sequences_per_run() -> None:
    batch = adversarial_batch(7, 30, runs=(2,))
    keep = Entr().keep(batch)
    found = masked_sequence_frac(batch, keep)
    assert found.shape == torch.Size([2])
    assert found[1] == masked_sequence_frac(batch.runs(1), keep[1])


def test_shapes_that_do_not_fit() -> None:
    batch = from_ratios([0.1, 0.2])
    with pytest.raises(ShapeError, match=r"keep must be \[2\], got \[3\]"):
        diagnose(batch, torch.ones(3, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"weight must be \[2\], got \[1\]"):
        diagnose(batch, torch.ones(2, dtype=torch.bool), torch.ones(1))


def test_without_a_weight_its_metrics_are_left_out() -> None:
    found = diagnose(from_ratios([0.1]), torch.tensor([True]))
    assert set(METRICS) - set(found) == {"weight_sq", "weight_mean"}
    assert all(text and not text.endswith(".") for text in METRICS.values())
