"""Replay: the same events give the same decisions, so a log rebuilds every batch of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from entr_lab.errors import DataError, ProtocolError
from entr_lab.pipeline.assembly import OrderKey
from entr_lab.pipeline.config import PipelineConfig
from entr_lab.pipeline.decisions import Batch
from entr_lab.pipeline.events import Event, Sink, plain_answer
from entr_lab.pipeline.protocol import Pipeline
from entr_lab.pipeline.records import Prompt
from entr_lab.pipeline.state import Closed
from entr_lab.pipeline.versions import VersionSpan

__all__ = ["apply", "replay"]

_CALLS = {"prompts": "add_prompts"}


def replay(
    events: Iterable[Event],
    *,
    snapshot: dict[str, Any] | None = None,
    order: OrderKey | None = None,
    closed: Closed | None = None,
    log: Sink | None = None,
) -> tuple[Pipeline, list[Batch]]:
    """Drive a new pipeline through a log, checking every recorded answer; return it with the batches it gave.

    Args:
        events: a log from its beginning.
        snapshot: begin from this snapshot instead, and skip what it has already seen.
        order: the custom order's key, where the run had one.
        closed: as for `Pipeline`; rebuilds a drop-bias report from a log.
        log: sink of what comes after the replayed events.

    Raises:
        DataError: the log is empty or does not begin with `start` or `resume`, or begins after the snapshot.
        ProtocolError: an event is not possible, or its answer differs from the recorded one.
    """
    pipeline = None if snapshot is None else Pipeline.restore(snapshot, order=order, closed=closed)
    batches: list[Batch] = []
    for event in events:
        if pipeline is None:
            pipeline = _begin(event, order, closed)
        elif event.seq > pipeline.seq:
            raise DataError(f"the log goes on with event {event.seq} where {pipeline.seq} is due; use the older log.")
        elif event.seq == pipeline.seq:
            answer = apply(pipeline, event)
            if isinstance(answer, Batch):
                batches.append(answer)
    if pipeline is None:
        raise DataError("the event log has no events; nothing can be replayed.")
    pipeline.attach_log(log)
    return pipeline, batches


def apply(pipeline: Pipeline, event: Event) -> object:
    """Make one recorded call, check that it answers as recorded, and return the answer.

    Raises:
        ProtocolError: it answers differently.
    """
    data = dict(event.data)
    recorded = data.pop("answer", None)
    if "spans" in data:
        data["spans"] = tuple(VersionSpan(*span) for span in data["spans"])
    if "prompts" in data:
        data["prompts"] = [Prompt(*prompt) for prompt in data["prompts"]]
    answer: object = getattr(pipeline, _CALLS.get(event.kind, event.kind))(**data)
    if recorded is not None and plain_answer(answer) != recorded:
        raise ProtocolError(
            f"replay of event {event.seq} ({event.kind}) gives {plain_answer(answer)}, recorded is {recorded}; "
            f"replay with the version and the order key that wrote the log."
        )
    return answer


def _begin(event: Event, order: OrderKey | None, closed: Closed | None) -> Pipeline:
    if event.kind == "start":
        pipeline = Pipeline(PipelineConfig.from_json(event.data["config"]), order=order, closed=closed)
    elif event.kind == "resume":
        pipeline = Pipeline.restore(event.data["state"], order=order, closed=closed)
    else:
        raise DataError(
            f"the event log begins with {event.kind!r}, not with start or resume; use it from its beginning."
        )
    if pipeline.seq != event.seq + 1:
        raise DataError(
            f"the event log begins with number {event.seq}, {pipeline.seq - 1} is due; it was pieced together."
        )
    return pipeline
