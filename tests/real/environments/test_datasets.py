"""Prompts by number, from generators and from files with the usual fields."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from entr_lab.errors import ConfigError, DataError
from entr_lab.real.config_sections import DataConfig, EnvironmentConfig
from entr_lab.real.environments.datasets import FileSamples, open_samples

ROWS = [{"prompt": f"{i}+1=", "ground_truth": str(i + 1), "data_source": "sums", "level": i} for i in range(5)]


def jsonl(tmp_path, rows):
    """Write rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def test_generated_stream_without_a_file():
    """The environment's own prompts, by number."""
    stream = open_samples(DataConfig(), EnvironmentConfig(name="noted-sum", options={"digits": 3}), 7)

    assert stream.sample(4) == stream.sample(4)
    assert len(stream.sample(4).prompt) == 4


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_both_kinds_of_file(tmp_path, kind):
    """Fields land where they belong; others are kept as extra."""
    path = jsonl(tmp_path, ROWS)
    if kind == "parquet":
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    stream = open_samples(DataConfig(path=str(path), shuffle=False), EnvironmentConfig(), 0)

    sample = stream.sample(3)
    assert (sample.prompt, sample.ground_truth, sample.source) == ("3+1=", "4", "sums")
    assert sample.extra == {"level": 3}
    assert len(stream) == 5


def test_nested_fields_and_chat_messages(tmp_path):
    """The layout of verl's data sets."""
    row = {"prompt": [{"role": "user", "content": "hi"}], "reward_model": {"ground_truth": "42"}, "data_source": "m"}
    fields = DataConfig(path="x", answer_field="reward_model.ground_truth")
    sample = FileSamples(jsonl(tmp_path, [row]), fields, 0).sample(0)

    assert sample.ground_truth == "42"
    assert sample.prompt == row["prompt"]


def test_epochs_are_permutations_with_unique_ids(tmp_path):
    """Each epoch visits each row once, in another order; going back gives the same sample."""
    stream = FileSamples(jsonl(tmp_path, ROWS), DataConfig(path="x"), 3)
    epochs = [[stream.sample(5 * epoch + i) for i in range(5)] for epoch in range(4)]

    for epoch in epochs:
        assert sorted(sample.prompt for sample in epoch) == sorted(row["prompt"] for row in ROWS)
    assert len({tuple(sample.prompt for sample in epoch) for epoch in epochs}) > 1
    assert len({sample.id for epoch in epochs for sample in epoch}) == 20
    assert stream.sample(2) == epochs[0][2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"ground_truth": "1"}', "row 1: no 'prompt'"),
        ('{"prompt": "a"}', "data.answer_field"),
        ('{"prompt": 3, "ground_truth": "1"}', "neither text nor"),
        ('{"prompt": [{"text": "a"}], "ground_truth": "1"}', "neither text nor"),
        ("[1]", "line 1: an object"),
        ("{", "line 1: not JSON"),
        ("", "holds no row"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, content, message):
    """File, row and field are named."""
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        FileSamples(path, DataConfig(path="x"), 0)


def test_files_that_cannot_be_read(tmp_path):
    """Missing, of another kind, or not what its name says."""
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 no")
    for path, message in ((tmp_path / "none.jsonl", "not there"), (tmp_path / "a.csv", "neither"), (broken, "Parquet")):
        with pytest.raises(ConfigError, match=message):
            FileSamples(path, DataConfig(path="x"), 0)
