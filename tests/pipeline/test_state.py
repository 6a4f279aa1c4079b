"""The indices of the state."""

from __future__ import annotations

from collections import Counter

from entr_lab.pipeline import Admission
from entr_lab.pipeline.state import decrement
from tests.pipeline.helpers import finish, make, start, take


def test_decrement_forgets_at_zero() -> None:
    counter = Counter({"a": 3})
    decrement(counter, "a", 2)
    assert counter == {"a": 1}
    decrement(counter, "a")
    assert dict(counter) == {}


def test_the_target_counts_the_batch_in_training() -> None:
    pipeline = make(Admission.one_step(updates_per_batch=3), prompts=3)
    finish(pipeline, start(pipeline)[0])
    assert pipeline.target == 0
    take(pipeline)
    assert (pipeline.version, pipeline.target) == (0, 3)
