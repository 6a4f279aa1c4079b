"""Keep-all: every token with a usable record, whatever its ratio."""

from __future__ import annotations

from entr_lab.rules import KeepAll
from entr_lab.testing import adversarial_batch


def test_keeps_exactly_the_recorded_tokens() -> None:
    batch = adversarial_batch(0, 600)
    recorded = batch.valid & batch.log_ratio.isfinite()
    assert 0 < recorded.sum() < 600
    assert (KeepAll().keep(batch) == recorded).all()


def test_has_no_threshold_to_scale() -> None:
    assert KeepAll().scaled(0.001) == KeepAll()
