"""Traces that come back as they were written, and that are never half there."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entr_lab.errors import DataError, ShapeError
from entr_lab.traces.schema import SEQUENCE_SCHEMA, TOKEN_SCHEMA, read_metadata
from entr_lab.traces.writer import TracedRollout, TraceWriter, read_trace

from .test_schema import metadata


def rollout(sequence=0, n=5, **changes):
    """A rollout whose third token is context."""
    random = np.random.default_rng(sequence)
    trainable = np.arange(n) != 2
    behaviour = {
        name: np.where(trainable, random.random(n), np.nan).astype(np.float32)
        for name in ("logp_mu", "entropy_mu", "collision_mu", "logp_pi")
    }
    made = TracedRollout(
        group=sequence // 2,
        sequence=sequence,
        prompt_ids=np.array([1, 2], dtype=np.int32),
        token_ids=np.arange(n, dtype=np.int32),
        trainable=trainable,
        turn=np.zeros(n, dtype=np.int32),
        weight_version=np.arange(n, dtype=np.int64) + 3,
        keep=trainable & (np.arange(n) != 0),
        reward=1.0,
        advantage=-0.5,
        sample_id=f"s{sequence}",
        source="toy",
        info={"truncated": False},
        **behaviour,
    )
    return replace(made, **changes)


def test_round_trip(tmp_path):
    """Rows in order, types of the schema, null on context, NaN of an engine kept."""
    first = rollout(0)
    first.logp_mu[1] = np.nan
    writer = TraceWriter(tmp_path, metadata())
    writer.write(0, 9, [first, rollout(1, n=3)])
    writer.write(1, 10, [rollout(2)])
    tokens, sequences = read_trace(tmp_path)

    assert tokens.schema.equals(TOKEN_SCHEMA)
    assert sequences.schema.equals(SEQUENCE_SCHEMA)
    assert tokens.column("sequence").to_pylist() == [0] * 5 + [1] * 3 + [2] * 5
    assert tokens.column("position").to_pylist() == [*range(5), *range(3), *range(5)]
    logp = tokens.column("logp_mu").to_pylist()
    assert np.isnan(logp[1])
    assert logp[2] is None
    assert logp[0] == pytest.approx(float(first.logp_mu[0]))
    assert tokens.column("keep").to_pylist()[:5] == [False, True, False, True, True]
    rows = sequences.to_pylist()
    assert [row["step"] for row in rows] == [0, 0, 1]
    assert rows[0] | {} == {
        "step": 0,
        "group": 0,
        "sequence": 0,
        "target_version": 9,
        "first_version": 3,
        "last_version": 7,
        "reward": 1.0,
        "advantage": -0.5,
        "n_tokens": 5,
        "n_trainable": 4,
        "prompt_ids": [1, 2],
        "sample_id": "s0",
        "source": "toy",
        "info": '{"truncated": false}',
    }
    assert read_metadata(tmp_path) == metadata()


def test_the_same_step_again_replaces(tmp_path):
    """A resumed run trains a step once more and writes it once more."""
    writer = TraceWriter(tmp_path, metadata())
    writer.write(0, 0, [rollout(0), rollout(1)])
    TraceWriter(tmp_path, metadata(created="later")).write(0, 0, [rollout(0)])

    assert read_trace(tmp_path)[1].num_rows == 1


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    """A reader never sees half a batch."""
    writer = TraceWriter(tmp_path, metadata())
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        writer.write(0, 0, [rollout()])

    with pytest.raises(DataError, match="no batch"):
        read_trace(tmp_path)


def test_another_trace_is_not_continued(tmp_path):
    """Two methods in one folder would be read as one run."""
    TraceWriter(tmp_path, metadata())
    with pytest.raises(DataError, match="another trace"):
        TraceWriter(tmp_path, metadata(method="icepop"))


def test_wrong_rows_are_refused(tmp_path):
    """Unequal columns, nothing at all, objects as info."""
    writer = TraceWriter(tmp_path, metadata())
    with pytest.raises(ShapeError, match="logp_pi of sequence 3"):
        writer.write(0, 0, [rollout(3, logp_pi=np.zeros(2, dtype=np.float32))])
    with pytest.raises(DataError, match="no rollout"):
        writer.write(0, 0, [])
    with pytest.raises(DataError, match="plain data"):
        writer.write(0, 0, [rollout(info={"x": object()})])


def test_foreign_files_are_refused(tmp_path):
    """Missing columns, other types, and what is no Parquet."""
    TraceWriter(tmp_path, metadata()).write(0, 0, [rollout()])
    path = tmp_path / "tokens" / "step-00000000.parquet"
    good = pq.read_table(path)
    text = good.set_column(0, "step", pa.array(["x"] * good.num_rows))
    for table, message in ((good.drop(["keep"]), "lacks the columns keep"), (text, "another type")):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=message):
            read_trace(tmp_path)
    path.write_bytes(b"no")
    with pytest.raises(DataError, match="cannot be read"):
        read_trace(tmp_path)
