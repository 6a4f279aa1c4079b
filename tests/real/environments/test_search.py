"""The search dialogue on the bundled corpus; every bundled question can be answered from it."""

import asyncio
import json

import pytest

from entr_lab.errors import ConfigError, DataError
from entr_lab.real.environments.base import Sample
from entr_lab.real.environments.search import DATA, Search, normalised
from entr_lab.real.environments.tools import ToolRunner

from .words import WordCodec

pytest.importorskip("rank_bm25")
CODEC = WordCodec()


def test_two_hops_lead_to_the_answer():
    """The second look-up needs what the first one found."""
    question = "On which river lies the town where Maren Holt was born?"
    rows = [json.loads(line) for line in (DATA / "questions.jsonl").read_text().splitlines()]
    truth = next(row["ground_truth"] for row in rows if row["prompt"] == question)
    environment = Search(CODEC, ToolRunner(), documents=1)

    async def play():
        prompt = await environment.reset(Sample("q", question, truth))
        first = await environment.step(CODEC.encode("<call>Maren Holt born</call>"))
        town = CODEC.decode(first.context_ids).split("born in ")[1].split(".")[0]
        second = await environment.step(CODEC.encode(f"<call>{town} town river mayor</call>"))
        river = CODEC.decode(second.context_ids).split("river ")[1].split(".")[0]
        return prompt, await environment.step(CODEC.encode(f"<answer>The {river}.</answer>"))

    prompt, last = asyncio.run(play())
    assert CODEC.decode(prompt).endswith(f"Question: {question}")
    assert last.reward == 1.0
    assert last.info["tool_calls"] == 2


def test_every_answer_is_in_the_corpus():
    """No bundled question is unanswerable."""
    corpus = normalised((DATA / "corpus.jsonl").read_text())
    rows = [json.loads(line) for line in (DATA / "questions.jsonl").read_text().splitlines()]

    assert len(rows) == 112
    assert all(normalised(row["ground_truth"]) in corpus for row in rows)


def test_ranking_is_deterministic_and_bounded():
    """At most `documents` lines; nothing found is said."""
    environment = Search(CODEC, ToolRunner(), documents=2)

    assert environment.tool("Ostervik") == environment.tool("ostervik!")
    assert "Ostervik" in environment.tool("Ostervik").splitlines()[0]
    assert len(environment.tool("town river mayor").splitlines()) <= 2
    assert environment.tool("xylophone") == "nothing found"


def test_one_of_several_truths():
    """A data set may list aliases."""
    environment = Search(CODEC, ToolRunner())

    assert environment.score("the Lenn", Sample("q", "", ["Avor", "Lenn"])) == 1.0
    assert environment.score("Lennon", Sample("q", "", "Lenn")) == 0.0


def test_a_round_of_questions_visits_each_once():
    """The order is a permutation, whatever the seed."""
    for seed in (0, 3):
        assert len({Search.generate(seed, index).prompt for index in range(112)}) == 112
        ids = {Search.generate(seed, index).id for index in range(300)}
        assert len(ids) == 300


def test_a_corpus_of_ones_own(tmp_path):
    """JSONL with title and text; what is wrong is named."""
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '{"title": "T", "text": "alpha beta"}\n{"title": "U", "text": "gamma"}\n{"title": "V", "text": "x"}\n'
    )
    assert Search(CODEC, ToolRunner(), corpus=str(path)).tool("gamma") == "U: gamma"

    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"title": "T"}\n')
    with pytest.raises(DataError, match="line 1"):
        Search(CODEC, ToolRunner(), corpus=str(broken))
    with pytest.raises(ConfigError, match="cannot read"):
        Search(CODEC, ToolRunner(), corpus=str(tmp_path / "none.jsonl"))
