"""What a driver may not do, and what is ignored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from entr_lab.errors import ProtocolError
from entr_lab.pipeline import Admission, Outcome, Pipeline, Prompt, VersionSpan
from tests.pipeline.helpers import finish, make, spans, start, step, take


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.join("w", 0), "is there already"),
        (lambda p: p.join("v", 1), "outside the published 0…0"),
        (lambda p: p.lose("v", 0.0), "'v' is unknown"),
        (lambda p: p.dispatch("v", 1, 0.0), "'v' is unknown"),
        (lambda p: p.update("w", 1, 0.0), "outside the published"),
        (lambda p: p.publish(1, 0.0), "without a batch"),
        (lambda p: p.reissue(), "none can be reissued"),
        (lambda p: p.complete(99, spans(0), 0.0, 0.0), "never issued"),
        (lambda p: p.complete(-1, spans(0), 0.0, 0.0), "never issued"),
        (lambda p: p.complete(0, spans(0), float("nan"), 0.0), "has reward nan"),
        (lambda p: p.complete(0, (), 0.0, 0.0), "at least one token"),
        (lambda p: p.score(0, 1.0, 0.0), "has no tokens yet"),
        (lambda p: p.add_prompts([Prompt("x", "", float("inf"))]), "difficulty inf"),
    ],
)
def test_a_forbidden_call_says_so_and_changes_nothing(call: Callable[[Pipeline], object], message: str) -> None:
    pipeline = make(Admission.asynchronous(2, 1), prompts=3)
    start(pipeline)
    before = pipeline.snapshot()
    with pytest.raises(ProtocolError, match=message):
        call(pipeline)
    assert pipeline.snapshot() == before


def test_weights_never_go_back() -> None:
    pipeline = make(Admission.asynchronous(2, 1), prompts=3)
    finish(pipeline, start(pipeline)[0])
    step(pipeline)
    with pytest.raises(ProtocolError, match="weights never go back"):
        pipeline.update("w", 0, 0.0)


def test_prompts_after_the_end_are_refused() -> None:
    pipeline = make()
    pipeline.exhaust()
    with pytest.raises(ProtocolError, match="after exhaust"):
        pipeline.add_prompts([Prompt("x")])


def test_generated_then_scored_is_completed() -> None:
    pipeline = make(prompts=2)
    rollout = start(pipeline)[0]
    assert pipeline.generated(rollout.ticket, spans(0, each=4), 1.0) is Outcome.OPEN
    assert pipeline.running("w") == ()
    assert pipeline.pending_rewards() == (rollout.ticket,)
    with pytest.raises(ProtocolError, match="report score"):
        pipeline.complete(rollout.ticket, spans(0), 0.0, 0.0)
    pipeline.lose("w", 2.0)  # its tokens are safe with the driver
    assert pipeline.score(rollout.ticket, 0.5, 3.0) is Outcome.READY
    assert [(t.reward, t.ended) for g in take(pipeline).groups for t in g.done] == [(0.5, 1.0)]


@pytest.mark.parametrize("report", ["complete", "generated", "score", "fail", "progress"])
def test_late_reports_are_ignored(report: str) -> None:
    pipeline = make(prompts=2)
    rollout = start(pipeline)[0]
    finish(pipeline, rollout)
    calls: dict[str, Callable[[], object]] = {
        "complete": lambda: pipeline.complete(rollout.ticket, spans(0), 1.0, 0.0),
        "generated": lambda: pipeline.generated(rollout.ticket, [VersionSpan(0, 0, 1)], 0.0),
        "score": lambda: pipeline.score(rollout.ticket, 1.0, 0.0),
        "fail": lambda: pipeline.fail(rollout.ticket, 0.0),
        "progress": lambda: pipeline.progress(rollout.ticket, spans(0)),
    }
    assert calls[report]() in (Outcome.LATE, None)
    assert pipeline.counts.late == (report != "progress")
    pipeline.audit()


def test_a_broken_intra_bound_is_never_trained_on() -> None:
    """The engine mixed more versions than allowed (it says so itself): the rollout is not used."""
    pipeline = make(Admission.exact(0, 1), prompts=3, max_attempts=1)
    finish(pipeline, start(pipeline)[0])
    step(pipeline)
    finish(pipeline, start(pipeline)[0], 0, 1)
    step(pipeline)
    with pytest.raises(ProtocolError, match="can only have 1…2"):
        finish(pipeline, start(pipeline)[0], 1, 3)
