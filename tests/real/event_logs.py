"""What the event log of a run says, for the tests that kill one."""

from __future__ import annotations

from pathlib import Path

from entr_lab.pipeline import Batch, Pipeline, read_log, replay


def published(folder: Path) -> tuple[list[Batch], Pipeline]:
    """Replay the whole log, which must be one; return the batches published, in order, and the pipeline at the end."""
    log = read_log((folder / "events.jsonl").read_bytes())
    assert log.unread == 0, log.reason
    assert [event.kind for event in log.events].count("start") == 1
    pipeline, batches = replay(log.events)
    pipeline.audit()
    times = [event.kind for event in log.events].count("publish")
    return list({batch.step: batch for batch in batches}.values())[:times], pipeline
