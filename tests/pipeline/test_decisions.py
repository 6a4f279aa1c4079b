"""Answers are plain values."""

from __future__ import annotations

from entr_lab.pipeline.admission import Admission
from entr_lab.pipeline.decisions import WAIT, Reason, UpdatePlan, Wait
from tests.pipeline.helpers import finish, make, start, take


def test_there_is_one_wait_per_reason() -> None:
    assert {wait.reason for wait in WAIT.values()} == set(Reason)
    assert WAIT[Reason.TRAINING] == Wait(Reason.TRAINING)


def test_a_batch_counts_its_tokens_by_staleness() -> None:
    pipeline = make(Admission.asynchronous(2, 1), prompts=3, group_size=2)
    for rollout in start(pipeline, 2):
        finish(pipeline, rollout, each=7)
    assert take(pipeline).staleness() == {0: 14}


def test_nothing_to_load_is_the_empty_plan() -> None:
    assert make(prompts=1).plan_update("w") == UpdatePlan(None)
