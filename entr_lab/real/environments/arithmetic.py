"""Mathematics in one turn with an exact-match reward: generated sums, or a data set such as GSM8K or DAPO-Math."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from entr_lab.real.environments.base import Codec, Sample, Step
from entr_lab.real.environments.tools import ToolRunner

__all__ = ["Arithmetic", "final_answer", "same_answer"]

_BOXED: Final = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKED: Final = re.compile(r"(?:<answer>|####|(?i:answer\s*(?:is|:|=)))\s*(.+?)\s*(?:</answer>|\n|$)")
_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def final_answer(text: str) -> str | None:
    """Return what a solution gives as its answer: the last boxed, else the last marked, else the last number."""
    for pattern in (_BOXED, _MARKED):
        if found := pattern.findall(text):
            return str(found[-1]).strip()
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def same_answer(answer: str, truth: str) -> bool:
    """Compare as exact numbers where both are, else as text without case, spaces, $ and a final full stop."""
    left, right = _plain(answer), _plain(truth)
    number = _number(left), _number(right)
    if None not in number:
        return number[0] == number[1]
    return left == right


def _plain(text: str) -> str:
    return re.sub(r"[\s$,]", "", text).rstrip(".").lower()


def _number(text: str) -> Fraction | None:
    # Digits are bounded, since 1e999999999 would be an exact number of a billion digits.
    if len(text) > 64 or not re.fullmatch(r"-?\d+(?:\.\d+)?(?:/0*[1-9]\d*)?", text, re.ASCII):
        return None
    head, _, below = text.partition("/")
    return Fraction(head) / Fraction(below or "1")


class Arithmetic:
    """One trajectory: one answer, reward 1 if it is the ground truth.

    Args:
        codec: of the model.
        tools: not used.
        largest: largest number of a generated sum.
    """

    def __init__(self, codec: Codec, tools: ToolRunner, largest: int = 99) -> None:
        self._codec = codec
        self._truth = ""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end of the turn."""
        return (self._codec.eos_id,)

    @classmethod
    def generate(cls, seed: int, index: int, largest: int = 99) -> Sample:
        """Draw a sum of two numbers."""
        left, right = np.random.default_rng((seed, index)).integers(0, largest + 1, 2)
        return Sample(f"arithmetic-{index}", f"{left}+{right}=", str(left + right), "arithmetic")

    async def reset(self, sample: Sample) -> list[int]:
        """Return the prompt's ids."""
        self._truth = str(sample.ground_truth)
        return self._codec.prompt(sample.prompt)

    async def step(self, token_ids: Sequence[int]) -> Step:
        """Judge the answer."""
        ids = [token for token in token_ids if token != self._codec.eos_id]
        answer = final_answer(self._codec.decode(ids))
        right = answer is not None and same_answer(answer, self._truth)
        return Step(reward=float(right), info={"answered": answer is not None})
