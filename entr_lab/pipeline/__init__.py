"""The asynchronous protocol as a pure state machine; the simulator and the trainer drive the same classes.

No clock, no input or output, no threads, no tensors.
"""

from entr_lab.pipeline.admission import Admission, Mode, OnUpdate, Policy
from entr_lab.pipeline.config import Order, PipelineConfig
from entr_lab.pipeline.decisions import Batch, Done, DropReason, LossReason, Outcome, Reason, UpdatePlan, Wait
from entr_lab.pipeline.drop_bias import DropBias
from entr_lab.pipeline.events import Event, encode, read_log
from entr_lab.pipeline.protocol import Pipeline
from entr_lab.pipeline.records import Group, Prompt, Trajectory
from entr_lab.pipeline.replay import replay
from entr_lab.pipeline.versions import (
    VersionSpan,
    inter_lag,
    intra_lag,
    spans_of,
    token_count,
    token_staleness,
    versions_of,
)

__all__ = [
    "Admission",
    "Batch",
    "Done",
    "DropBias",
    "DropReason",
    "Event",
    "Group",
    "LossReason",
    "Mode",
    "OnUpdate",
    "Order",
    "Outcome",
    "Pipeline",
    "PipelineConfig",
    "Policy",
    "Prompt",
    "Reason",
    "Trajectory",
    "UpdatePlan",
    "VersionSpan",
    "Wait",
    "encode",
    "inter_lag",
    "intra_lag",
    "read_log",
    "replay",
    "spans_of",
    "token_count",
    "token_staleness",
    "versions_of",
]
