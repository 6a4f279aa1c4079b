"""Writing traces while a run goes on: one pair of Parquet files a batch, each there whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entr_lab.errors import DataError, ShapeError
from entr_lab.traces.schema import SEQUENCE_SCHEMA, TOKEN_SCHEMA, TraceMetadata

__all__ = ["TraceWriter", "TracedRollout", "read_trace"]


@dataclass(frozen=True, slots=True)
class TracedRollout:
    """One rollout as the writer takes it; arrays have one entry per token after the prompt.

    Args:
        group, sequence: numbers within the run.
        prompt_ids: `[p]`.
        token_ids, trainable, turn, weight_version, logp_mu, entropy_mu, collision_mu: `[n]`, as sampled.
        logp_pi: `[n]`, NaN on context.
        keep: `[n]` bool.
        reward, advantage: scalars.
        sample_id, source: of the data set.
        info: plain data.
    """

    group: int
    sequence: int
    prompt_ids: NDArray[np.int32]
    token_ids: NDArray[np.int32]
    trainable: NDArray[np.bool_]
    turn: NDArray[np.int32]
    weight_version: NDArray[np.int64]
    logp_mu: NDArray[np.float32]
    entropy_mu: NDArray[np.float32]
    collision_mu: NDArray[np.float32]
    logp_pi: NDArray[np.float32]
    keep: NDArray[np.bool_]
    reward: float
    advantage: float
    sample_id: str = ""
    source: str = ""
    info: dict[str, Any] = field(default_factory=dict)


_PER_TOKEN = ("token_ids", "trainable", "turn", "weight_version", "keep")
_FLOATS = ("logp_mu", "entropy_mu", "collision_mu", "logp_pi")


class TraceWriter:
    """Writes one trace folder.

    Args:
        folder: of the trace; created. A folder that holds the same trace is continued.
        metadata: what holds for all of it.

    Raises:
        DataError: the folder holds another trace.
    """

    def __init__(self, folder: Path, metadata: TraceMetadata) -> None:
        self.folder = folder
        for name in ("tokens", "sequences"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        path = folder / "trace.json"
        content = metadata.model_dump_json(indent=1)
        if path.exists():
            same = {**json.loads(path.read_text(encoding="utf-8")), "created": metadata.created}
            if same != json.loads(content):
                raise DataError(f"{str(folder)!r} holds another trace already; write to a new folder.")
            return
        _write_whole(path, content.encode())

    def write(self, step: int, target_version: int, rollouts: Sequence[TracedRollout]) -> None:
        """Write one batch; the same step again replaces what was there.

        Raises:
            ShapeError: a column has another length than the tokens.
            DataError: there is nothing to write, or an info is not plain data.
        """
        if not rollouts:
            raise DataError(f"step {step} has no rollout to trace.")
        for rollout in rollouts:
            for name in (*_PER_TOKEN, *_FLOATS):
                if len(getattr(rollout, name)) != len(rollout.token_ids):
                    raise ShapeError(
                        f"{name} of sequence {rollout.sequence} has {len(getattr(rollout, name))} entries for "
                        f"{len(rollout.token_ids)} tokens."
                    )
        self._put("tokens", step, _token_table(step, rollouts))
        self._put("sequences", step, _sequence_table(step, target_version, rollouts))

    def _put(self, kind: str, step: int, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        _write_whole(self.folder / kind / f"step-{step:08d}.parquet", sink.getvalue())


def read_trace(folder: Path) -> tuple[pa.Table, pa.Table]:
    """Return (tokens, sequences) of a whole trace, in order of steps.

    Raises:
        DataError: a table is missing, unreadable, or lacks a column of the schema.
    """
    tables = []
    for kind, schema in (("tokens", TOKEN_SCHEMA), ("sequences", SEQUENCE_SCHEMA)):
        paths = sorted((folder / kind).glob("step-*.parquet"))
        if not paths:
            raise DataError(f"{str(folder / kind)!r} holds no batch; is {str(folder)!r} a trace?")
        parts = [_read(path, schema) for path in paths]
        tables.append(pa.concat_tables(parts))
    return tables[0], tables[1]


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{str(path)!r} cannot be read: {error}") from None
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise DataError(f"{str(path)!r} lacks the columns {', '.join(missing)}.")
    try:
        return table.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise DataError(f"{str(path)!r} has a column of another type: {error}") from None


def _token_table(step: int, rollouts: Sequence[TracedRollout]) -> pa.Table:
    lengths = [len(rollout.token_ids) for rollout in rollouts]
    trainable = np.concatenate([rollout.trainable for rollout in rollouts])
    columns: dict[str, Any] = {
        "step": np.full(sum(lengths), step),
        "group": np.repeat([rollout.group for rollout in rollouts], lengths),
        "sequence": np.repeat([rollout.sequence for rollout in rollouts], lengths),
        "position": np.concatenate([np.arange(length) for length in lengths]),
    }
    for name in _PER_TOKEN:
        columns[name] = np.concatenate([getattr(rollout, name) for rollout in rollouts])
    for name in _FLOATS:
        # A NaN on a trainable token is what the engine recorded, and stays; on context there is nothing to record.
        columns[name] = pa.array(np.concatenate([getattr(rollout, name) for rollout in rollouts]), mask=~trainable)
    columns["token_id"] = columns.pop("token_ids")
    return pa.table({field.name: pa.array(columns[field.name]).cast(field.type) for field in TOKEN_SCHEMA}).cast(
        TOKEN_SCHEMA
    )


def _sequence_table(step: int, target_version: int, rollouts: Sequence[TracedRollout]) -> pa.Table:
    rows = []
    for rollout in rollouts:
        versions = rollout.weight_version[rollout.trainable]
        try:
            info = json.dumps(rollout.info, ensure_ascii=False, sort_keys=True)
        except TypeError as error:
            raise DataError(f"info of sequence {rollout.sequence} is not plain data: {error}.") from None
        rows.append(
            {
                "step": step,
                "group": rollout.group,
                "sequence": rollout.sequence,
                "target_version": target_version,
                "first_version": int(versions[0]) if len(versions) else None,
                "last_version": int(versions[-1]) if len(versions) else None,
                "reward": float(rollout.reward),
                "advantage": float(rollout.advantage),
                "n_tokens": len(rollout.token_ids),
                "n_trainable": len(versions),
                "prompt_ids": rollout.prompt_ids.tolist(),
                "sample_id": rollout.sample_id,
                "source": rollout.source,
                "info": info,
            }
        )
    return pa.Table.from_pylist(rows, schema=SEQUENCE_SCHEMA)


def _write_whole(path: Path, content: Any) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
