"""What a driver sees."""

from __future__ import annotations

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission
from tests.pipeline.helpers import finish, make, start, step


def test_the_view_follows_the_life_of_a_group() -> None:
    pipeline = make(Admission.asynchronous(2, 0), prompts=3, deadline=4.0)
    assert (pipeline.prompts_left, pipeline.open_groups, pipeline.ready_groups) == (3, 0, 0)
    assert pipeline.next_deadline is None
    rollout = start(pipeline, now=2.0)[0]
    assert (pipeline.prompts_left, pipeline.open_groups, pipeline.ready_groups) == (2, 1, 0)
    assert pipeline.next_deadline == 6.0
    assert pipeline.running("w") == (rollout.ticket,)
    finish(pipeline, rollout)
    assert (pipeline.open_groups, pipeline.ready_groups, pipeline.next_deadline) == (0, 1, None)
    seq = pipeline.seq
    step(pipeline)
    assert (pipeline.version, pipeline.workers, pipeline.training) == (1, {"w": 1}, None)
    assert pipeline.seq == seq + 3


def test_unknown_workers_are_named() -> None:
    with pytest.raises(ProtocolError, match="'nobody' is unknown"):
        make().running("nobody")
