"""Noted sum: add up digits and note every step; one turn of fixed length, a clear reward, ready in seconds.

The prompt is `<bos> d1 … dK =`. The answer has six tokens for each digit:

    w1 w2 TOOL d s ;     two free synonyms, one of eight tools, the digit again, the running sum modulo 10, a mark

Reward 1 if every token is of its class, every digit is copied and the last s is the sum of all digits modulo 10. The
tool is not rewarded: a warm-started policy writes a random s after a wrong tool, so it has to learn the right tool or
to do without it. Ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from entr_lab.errors import check_range
from entr_lab.real.environments.base import Codec, Sample, Step
from entr_lab.real.environments.tools import ToolRunner

__all__ = ["FIRST", "SECOND", "TOOLS", "NotedSum"]

FIRST: Final = "abcdefgh"
SECOND: Final = "ijklmnop"
TOOLS: Final = "ABCDEFGH"
DIGITS: Final = "0123456789"
STEP_TOKENS: Final = 6


class NotedSum:
    """One trajectory; see the module.

    Args:
        codec: must know the tiny vocabulary's pieces.
        tools: not used.
        digits: K.
    """

    def __init__(self, codec: Codec, tools: ToolRunner, digits: int = 6) -> None:
        check_range("digits", digits, low=1, high=32)
        self._codec = codec
        self._digits = ""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end of the turn, which a right answer writes after its last mark unless `max_tokens` = 6 K ends it."""
        return (self._codec.eos_id,)

    @classmethod
    def generate(cls, seed: int, index: int, digits: int = 6) -> Sample:
        """Draw the prompt `index` of a run's stream."""
        drawn = np.random.default_rng((seed, index)).integers(0, 10, digits)
        text = "".join(map(str, drawn))
        return Sample(f"noted-sum-{index}", f"{text}=", str(int(drawn.sum()) % 10), "noted-sum")

    async def reset(self, sample: Sample) -> list[int]:
        """Return the prompt's ids."""
        self._digits = str(sample.prompt).rstrip("=")
        return self._codec.prompt(sample.prompt)

    async def step(self, token_ids: Sequence[int]) -> Step:
        """Judge the answer."""
        ids = list(token_ids)
        if ids and ids[-1] == self._codec.eos_id:
            ids.pop()
        pieces = [self._codec.decode([token]) for token in ids]
        n_right = sum(map(self._well_formed, range(len(pieces)), pieces))
        well_formed = n_right == len(pieces) == STEP_TOKENS * len(self._digits)
        total = str(sum(map(int, self._digits)) % 10)
        reward = float(well_formed and pieces[-2] == total)
        return Step(reward=reward, info={"well_formed": float(well_formed)})

    def _well_formed(self, place: int, piece: str) -> bool:
        number, slot = divmod(place, STEP_TOKENS)
        if number >= len(self._digits):
            return False
        allowed = (FIRST, SECOND, TOOLS, self._digits[number], DIGITS, ";")[slot]
        return piece in allowed
