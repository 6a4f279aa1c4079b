"""The fixed vocabulary of the tiny model, in pure Python and as a Hugging Face tokenizer folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from entr_lab.errors import ConfigError, DataError

__all__ = ["PIECES", "FixedVocabulary", "HuggingFaceCodec", "load_codec", "save_tokenizer"]

_SPECIAL: Final = ("<pad>", "<bos>", "<eos>", "<call>", "</call>", "<result>", "</result>", "<answer>")
PIECES: Final[tuple[str, ...]] = (*_SPECIAL, *"0123456789", *"abcdefghijklmnop", *"ABCDEFGH", *"+-*/()=;", *" .,:?!")
"""56 pieces: marks, digits, two sets of eight synonyms (a-h, i-p), eight tools (A-H), operators, punctuation."""


class FixedVocabulary:
    """A codec over pieces that each are one token; text outside them is refused.

    Args:
        pieces: distinct strings; an id is a place in them.
    """

    def __init__(self, pieces: Sequence[str] = PIECES) -> None:
        self.pieces = tuple(pieces)
        self.ids = {piece: index for index, piece in enumerate(self.pieces)}
        longest_first = sorted(self.pieces, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    @property
    def eos_id(self) -> int:
        """The id of `<eos>`."""
        return self.ids["<eos>"]

    def encode(self, text: str) -> list[int]:
        """Return one id per piece.

        Raises:
            DataError: a character belongs to no piece.
        """
        found = self._pattern.findall(text)
        if sum(map(len, found)) != len(text):
            rest = self._pattern.sub("", text)
            raise DataError(f"{text[:40]!r} holds {rest[:10]!r}, which the tiny vocabulary lacks; use another model.")
        return [self.ids[piece] for piece in found]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the pieces, joined."""
        return "".join(self.pieces[index] for index in ids)

    def prompt(self, prompt: str | list[dict[str, str]]) -> list[int]:
        """Return the ids of a text prompt, after `<bos>`.

        Raises:
            ConfigError: the prompt is a list of chat messages, which the tiny model does not know.
        """
        if not isinstance(prompt, str):
            raise ConfigError("the tiny model has no chat template; give prompts as text or use another model.")
        return [self.ids["<bos>"], *self.encode(prompt)]


class HuggingFaceCodec:
    """The codec of a Hugging Face tokenizer.

    Args:
        tokenizer: a `PreTrainedTokenizerBase` with an end-of-sequence token.

    Raises:
        ConfigError: it has none.
    """

    def __init__(self, tokenizer: object) -> None:
        self._tokenizer: object = tokenizer
        if getattr(tokenizer, "eos_token_id", None) is None:
            raise ConfigError("the model's tokenizer has no end-of-sequence token; set eos_token in its folder.")

    @property
    def eos_id(self) -> int:
        """The id of the end-of-sequence token."""
        return int(self._tokenizer.eos_token_id)  # type: ignore[attr-defined]

    def encode(self, text: str) -> list[int]:
        """Return ids without special tokens added."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))  # type: ignore[attr-defined]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, special tokens included."""
        return str(
            self._tokenizer.decode(  # type: ignore[attr-defined]
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def prompt(self, prompt: str | list[dict[str, str]]) -> list[int]:
        """Return the ids of a prompt: messages by the chat template, text with the tokenizer's own special tokens.

        Raises:
            ConfigError: messages are given and the tokenizer has no chat template.
        """
        tokenizer = self._tokenizer
        if isinstance(prompt, str):
            return list(tokenizer.encode(prompt))  # type: ignore[attr-defined]
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("prompts are chat messages, but the tokenizer has no chat template; give text instead.")
        text = tokenizer.apply_chat_template(  # type: ignore[attr-defined]
            prompt, tokenize=False, add_generation_prompt=True
        )
        return self.encode(text)


def load_codec(
    path: Path | str, vocabulary_size: int, *, trust_remote_code: bool = False
) -> FixedVocabulary | HuggingFaceCodec:
    """Return the codec of a model folder; the tiny model's needs no transformers.

    Args:
        path: folder or hub name.
        vocabulary_size: rows of the model's embedding.
        trust_remote_code: run Python code that comes with the tokenizer.

    Raises:
        ConfigError: there is no tokenizer, or it knows more tokens than the model.
    """
    own = Path(path) / "entr_lab_vocabulary.json"
    if own.is_file():
        pieces = json.loads(own.read_text(encoding="utf-8"))
        codec: FixedVocabulary | HuggingFaceCodec = FixedVocabulary(pieces)
        largest = len(pieces)
    else:
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path), trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ConfigError(f"cannot load a tokenizer from {str(path)!r}: {reason}") from None
        codec, largest = HuggingFaceCodec(tokenizer), len(tokenizer)
    if largest > vocabulary_size:
        raise ConfigError(
            f"the tokenizer of {str(path)!r} knows {largest} tokens, but the model's vocabulary has {vocabulary_size}; "
            f"they do not belong together, so use the model's own tokenizer."
        )
    return codec


def save_tokenizer(folder: Path, pieces: Sequence[str] = PIECES) -> None:
    """Write a folder that both `load_codec` and transformers' `AutoTokenizer` read."""
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    special = [piece for piece in pieces if len(piece) > 1]
    added = [
        {"id": vocabulary[piece], "content": piece, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for piece in special
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<pad>"},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<pad>",
        "clean_up_tokenization_spaces": False,
    }
    for name, content in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
        ("entr_lab_vocabulary.json", list(pieces)),
    ):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
