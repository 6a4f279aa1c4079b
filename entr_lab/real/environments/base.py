"""What an environment is: a conversation in token ids with one trajectory.

One object plays one trajectory: `reset` gives the prompt, each `step` takes what the model sampled and gives either
more context (a tool's answer) or the reward. What a model sampled is never tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Codec", "Environment", "Sample", "Step"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of data.

    Args:
        id: unique in its data set.
        prompt: text, or chat messages `{"role": …, "content": …}`.
        ground_truth: what the reward compares with.
        source: name of the data set, by which reports split.
        extra: further fields of the item.
    """

    id: str
    prompt: str | list[dict[str, str]]
    ground_truth: Any = None
    source: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Answer to what the model sampled.

    Args:
        context_ids: tokens to append before the model goes on; not trained on. Empty where the trajectory is over.
        reward: of the whole trajectory where it is over, else None.
        info: plain data to be logged.
    """

    context_ids: tuple[int, ...] = ()
    reward: float | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the trajectory is over."""
        return self.reward is not None


class Codec(Protocol):
    """Text to token ids and back; `decode` shows every token, special ones too."""

    @property
    def eos_id(self) -> int:
        """The token that ends a turn."""

    def encode(self, text: str) -> list[int]:
        """Return ids without adding special tokens; special tokens that the text spells out are recognised."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text."""

    def prompt(self, prompt: str | list[dict[str, str]]) -> list[int]:
        """Return the ids of a whole prompt, by the chat template where it is a list of messages."""


class Environment(Protocol):
    """One trajectory of one task.

    A class of your own is named as `module:Class` and is called as `Class(codec, tools, **options)`, with `tools` a
    `ToolRunner`. With a classmethod `generate(seed, index, **options) -> Sample` it needs no data file.
    """

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion, the end of the turn among them."""

    async def reset(self, sample: Sample) -> list[int]:
        """Start the trajectory; return the prompt's ids."""

    async def step(self, token_ids: Sequence[int]) -> Step:
        """Take one completion, its stop token included."""
