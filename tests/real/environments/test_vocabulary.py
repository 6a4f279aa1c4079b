"""The fixed vocabulary, alone and as a Hugging Face tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entr_lab.errors import ConfigError, DataError
from entr_lab.real.environments.vocabulary import PIECES, FixedVocabulary, load_codec, save_tokenizer

CODEC = FixedVocabulary()


@given(st.lists(st.integers(0, len(PIECES) - 1), max_size=30))
def test_round_trip(ids):
    """Every sequence of ids survives decode and encode, since no piece is made of others."""
    assert CODEC.encode(CODEC.decode(ids)) == ids


def test_unknown_text_is_refused():
    """A silent <unk> would train on something the user did not write."""
    with pytest.raises(DataError, match="Z"):
        CODEC.encode("1+Z")


def test_chat_messages_need_a_template():
    """The tiny model has none."""
    with pytest.raises(ConfigError, match="chat template"):
        CODEC.prompt([{"role": "user", "content": "1+1="}])


def test_folder_round_trip(tmp_path):
    """A saved folder gives the codec back without transformers."""
    save_tokenizer(tmp_path)
    codec = load_codec(tmp_path, 56)

    assert codec.pieces == PIECES
    assert codec.prompt("1+2=") == [1, *CODEC.encode("1+2=")]


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    """Ids beyond the embedding would crash the engine much later."""
    save_tokenizer(tmp_path)
    with pytest.raises(ConfigError, match="do not belong together"):
        load_codec(tmp_path, 40)


def test_transformers_reads_the_same_ids(tmp_path):
    """AutoTokenizer agrees with the pure Python codec on text and ids."""
    transformers = pytest.importorskip("transformers")
    save_tokenizer(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    text = "<bos>7+3*5=<call>3*5</call><result>15</result>ajA3;<answer>22<eos>"

    assert tokenizer.encode(text, add_special_tokens=False) == CODEC.encode(text)
    assert tokenizer.decode(CODEC.encode(text)) == text
    assert len(tokenizer) == len(PIECES)
    assert tokenizer.eos_token_id == CODEC.eos_id


def test_hugging_face_codec(tmp_path):
    """The adapter encodes without special tokens of its own and shows every token."""
    pytest.importorskip("transformers")
    save_tokenizer(tmp_path)
    (tmp_path / "entr_lab_vocabulary.json").unlink()
    codec = load_codec(tmp_path, 56)
    text = "<call>3*5</call>"

    assert codec.encode(text) == CODEC.encode(text)
    assert codec.decode(codec.encode(text)) == text
    assert codec.eos_id == CODEC.eos_id
    with pytest.raises(ConfigError, match="no chat template"):
        codec.prompt([{"role": "user", "content": "1"}])
