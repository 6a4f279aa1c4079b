"""Metadata that is validated, and columns that all say what they mean."""

import json

import pytest
from pydantic import ValidationError

from entr_lab.errors import DataError
from entr_lab.traces.schema import SCHEMA_VERSION, SEQUENCE_SCHEMA, TOKEN_SCHEMA, TraceMetadata, read_metadata


def metadata(**changes):
    """Valid metadata."""
    return TraceMetadata(
        **{"method": "entr", "model": "tiny", "vocabulary": 56, "temperature": 1.0, "group_size": 8} | changes
    )


def test_every_column_has_a_meaning():
    """The schema documents itself, in the file too."""
    for schema in (TOKEN_SCHEMA, SEQUENCE_SCHEMA):
        assert schema.metadata[b"entr_lab.schema_version"] == str(SCHEMA_VERSION).encode()
        assert all(len(field.metadata[b"meaning"]) > 5 for field in schema)


def test_the_tables_join():
    """Both carry the three keys."""
    assert {"step", "group", "sequence"} <= set(TOKEN_SCHEMA.names) & set(SEQUENCE_SCHEMA.names)


@pytest.mark.parametrize(
    "wrong", [{"temperature": 0}, {"top_p": 1.5}, {"vocabulary": 0}, {"colour": 1}, {"schema_version": 2}]
)
def test_wrong_metadata_is_refused(wrong):
    """Bounds, unknown keys and other versions."""
    with pytest.raises(ValidationError):
        metadata(**wrong)


def test_reading(tmp_path):
    """Round trip; what is wrong is named."""
    path = tmp_path / "trace.json"
    path.write_text(metadata().model_dump_json())
    assert read_metadata(tmp_path) == metadata()

    good = json.loads(path.read_text())
    for content, message in (
        ("{", "cannot be read"),
        ("[]", "trace schema None"),
        (json.dumps({**good, "schema_version": 7}), "trace schema 7"),
        (json.dumps({**good, "temperature": -1}), "temperature"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_metadata(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_metadata(tmp_path / "none")
