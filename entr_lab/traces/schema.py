"""The trace schema: what is recorded of every rollout, under which names and types.

A trace is a folder:

    trace.json                          metadata: schema version, run, method, sampling distribution, model
    tokens/step-00000012.parquet        one row per token after the prompt
    sequences/step-00000012.parquet     one row per rollout

Rows of both tables carry `step`, `group` and `sequence`, which join them. Log-probs and entropies are natural and of
the distribution that was sampled from. Columns may be added within a schema version; a change of meaning raises it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from entr_lab.errors import DataError

__all__ = ["SCHEMA_VERSION", "SEQUENCE_SCHEMA", "TOKEN_SCHEMA", "TraceMetadata", "read_metadata"]

SCHEMA_VERSION: Final = 1

TOKEN_COLUMNS: Final[dict[str, tuple[Any, str]]] = {
    "step": (pa.int64(), "batch that trained on the token, from 0"),
    "group": (pa.int64(), "prompt group within the run"),
    "sequence": (pa.int64(), "rollout within the run"),
    "position": (pa.int32(), "place after the prompt, from 0"),
    "token_id": (pa.int32(), "id in the model's vocabulary"),
    "trainable": (pa.bool_(), "sampled by the policy; false on context such as a tool's answer"),
    "turn": (pa.int32(), "turn of the dialogue, from 0"),
    "weight_version": (pa.int64(), "version of the weights that sampled it; on context, of the token before"),
    "logp_mu": (pa.float32(), "log-prob under the distribution that was sampled from, as the engine recorded it"),
    "entropy_mu": (pa.float32(), "entropy of that distribution over the full vocabulary, nats"),
    "collision_mu": (pa.float32(), "Σ μ² of that distribution"),
    "logp_pi": (pa.float32(), "log-prob under the trainer's weights at the optimiser step that used it"),
    "keep": (pa.bool_(), "the rule's decision; false on context"),
}
"""Type and meaning of each column of the token table; floats are null on context tokens."""

SEQUENCE_COLUMNS: Final[dict[str, tuple[Any, str]]] = {
    "step": (pa.int64(), "batch that trained on the rollout, from 0"),
    "group": (pa.int64(), "prompt group within the run"),
    "sequence": (pa.int64(), "rollout within the run"),
    "target_version": (pa.int64(), "version that the update started from"),
    "first_version": (pa.int64(), "version of its first trainable token"),
    "last_version": (pa.int64(), "version of its last trainable token"),
    "reward": (pa.float64(), "scalar reward"),
    "advantage": (pa.float32(), "what the objective multiplied its tokens with"),
    "n_tokens": (pa.int32(), "tokens after the prompt"),
    "n_trainable": (pa.int32(), "of them sampled by the policy"),
    "prompt_ids": (pa.list_(pa.int32()), "ids of the prompt"),
    "sample_id": (pa.string(), "item of the data set"),
    "source": (pa.string(), "data set"),
    "info": (pa.string(), "what the environment said, JSON"),
}
"""Type and meaning of each column of the sequence table."""


def _schema(columns: dict[str, tuple[Any, str]]) -> pa.Schema:
    fields = [pa.field(name, kind, metadata={"meaning": text}) for name, (kind, text) in columns.items()]
    return pa.schema(fields, metadata={"entr_lab.schema_version": str(SCHEMA_VERSION)})


TOKEN_SCHEMA: Final = _schema(TOKEN_COLUMNS)
SEQUENCE_SCHEMA: Final = _schema(SEQUENCE_COLUMNS)


class TraceMetadata(BaseModel):
    """What holds for a whole trace."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    schema_version: Literal[1] = SCHEMA_VERSION
    source: str = "entr-lab"
    """Which trainer recorded it."""
    source_version: str = ""
    method: str
    """As the user wrote it."""
    model: str
    vocabulary: int = Field(ge=1)
    """V."""
    temperature: float = Field(gt=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    engine_dtype: str = ""
    trainer_dtype: str = ""
    group_size: int = Field(ge=1)
    updates_per_batch: int = Field(default=1, ge=1)
    seed: int = 0
    created: str = ""
    """ISO 8601, UTC."""
    notes: dict[str, str] = Field(default_factory=dict)


def read_metadata(folder: Path) -> TraceMetadata:
    """Return the metadata of a trace folder.

    Raises:
        DataError: there is none, it is of another schema version, or a field is wrong.
    """
    path = folder / "trace.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r} cannot be read ({error}); a trace is a folder with trace.json in it.") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(f"{str(path)!r} has trace schema {version!r}, this version reads {SCHEMA_VERSION}.")
    try:
        return TraceMetadata.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{str(path)!r}: {where}: {first['msg']}.") from None
