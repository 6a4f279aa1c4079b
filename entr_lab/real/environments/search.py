"""Search: questions that take two or three look-ups in a small invented corpus, ranked by BM25.

    <call>Maren Holt</call> <result>…born in Isken…</result> <call>Isken</call> <result>…</result> <answer>Lenn</answer>

The corpus (56 documents) and its 112 questions are bundled; a corpus of your own is a JSONL file with `title` and
`text`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from entr_lab.errors import ConfigError, DataError, check_range
from entr_lab.real.environments.base import Codec, Sample
from entr_lab.real.environments.dialogue import ToolDialogue
from entr_lab.real.environments.tools import ToolError, ToolRunner

__all__ = ["Search", "normalised"]

DATA: Final = Path(__file__).parent / "data"
INSTRUCTIONS: Final = (
    "Answer the question. To look something up write <call>words</call> and wait; the documents found come back "
    "between <result> and </result>. Give the answer as <answer>…</answer>, as short as possible.\nQuestion: "
)


def normalised(answer: str) -> str:
    """Return an answer without case, punctuation and articles, as exact match compares it."""
    words = re.findall(r"\w+", answer.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))


@cache
def _index(path: Path) -> tuple[Any, list[str]]:
    """Return the BM25 index of a corpus and its documents; built once a process."""
    from rank_bm25 import BM25Okapi

    documents = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            item = json.loads(line)
            documents.append(f"{item['title']}: {item['text']}")
        except (ValueError, TypeError, KeyError):
            raise DataError(
                f"{str(path)!r}, line {number}: not an object with title and text; fix that line."
            ) from None
    if not documents:
        raise DataError(f"{str(path)!r} holds no document.")
    return BM25Okapi([_words(document) for document in documents]), documents


@cache
def _questions() -> list[dict[str, str]]:
    return [json.loads(line) for line in _lines(DATA / "questions.jsonl")]


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the corpus {str(path)!r}: {error.strerror}.") from None
    return [line for line in text.splitlines() if line.strip()]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Search(ToolDialogue):
    """One trajectory; reward 1 if the normalised answer is the ground truth or one of several.

    Args:
        codec, tools, before_result, after_result: see `ToolDialogue`.
        corpus: JSONL file; empty takes the bundled one.
        documents: most documents that one call returns.
        instructions: put before the question where the prompt is text.
    """

    def __init__(
        self,
        codec: Codec,
        tools: ToolRunner,
        before_result: str = "<result>",
        after_result: str = "</result>",
        corpus: str = "",
        documents: int = 2,
        instructions: str = INSTRUCTIONS,
    ) -> None:
        super().__init__(codec, tools, before_result, after_result)
        check_range("documents", documents, low=1)
        self._ranking, self._documents = _index(Path(corpus) if corpus else DATA / "corpus.jsonl")
        self._most, self._instructions = documents, instructions

    @classmethod
    def generate(cls, seed: int, index: int, **_: object) -> Sample:
        """Return one of the bundled questions, in an order of the seed."""
        questions = _questions()
        # A step that shares no factor with the number of questions visits each once per round.
        item = questions[(seed * 31 + index * 37) % len(questions)]
        return Sample(f"{item['id']}-{index}", item["prompt"], item["ground_truth"], item["data_source"])

    async def reset(self, sample: Sample) -> list[int]:
        """Return the ids of the instructions and the question."""
        if isinstance(sample.prompt, str):
            sample = Sample(
                sample.id, self._instructions + sample.prompt, sample.ground_truth, sample.source, sample.extra
            )
        return await super().reset(sample)

    def tool(self, argument: str) -> str:
        """Return the best documents, one a line."""
        words = _words(argument)
        if not words:
            raise ToolError("write words to search for")
        scores = self._ranking.get_scores(words)
        best = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[: self._most]
        found = [self._documents[place] for place in best if scores[place] > 0]
        return "\n".join(found) if found else "nothing found"

    def score(self, answer: str, sample: Sample) -> float:
        """Return 1 for an exact match after normalisation."""
        truths = sample.ground_truth if isinstance(sample.ground_truth, list) else [sample.ground_truth]
        return float(normalised(answer) in [normalised(str(truth)) for truth in truths])
