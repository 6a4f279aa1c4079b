"""Prompts for the pipeline, by the number of their sample; the data cursor of a run is one integer. Ours."""

from __future__ import annotations

from entr_lab.pipeline import Prompt
from entr_lab.real.environments.datasets import SampleStream

__all__ = ["PromptFeed"]


class PromptFeed:
    """Hands out prompts whose id is the number of their sample.

    Args:
        samples: the stream.
        cursor: the next number.
    """

    def __init__(self, samples: SampleStream, cursor: int = 0) -> None:
        self._samples = samples
        self.cursor = cursor

    def next(self, count: int) -> list[Prompt]:
        """Return the next `count` prompts."""
        numbers = range(self.cursor, self.cursor + count)
        prompts = [Prompt(str(number), self._samples.sample(number).source) for number in numbers]
        self.cursor += count
        return prompts
