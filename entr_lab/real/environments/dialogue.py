"""A dialogue with one tool: the model calls, the tool answers, the model goes on, until it gives an answer.

    model:  <call>3*4</call>        tool:  <result>12</result>        model:  <answer>12</answer>

A call ends the completion where `</call>` is one token (it is a stop token then), else at the end of the turn. For a
chat model set `before_result` and `after_result` to what its template puts between two turns.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from entr_lab.real.environments.base import Codec, Sample, Step
from entr_lab.real.environments.tools import ToolRunner

__all__ = ["ToolDialogue"]

_CALL: Final = re.compile(r"<call>(.*?)</call>", re.DOTALL)
_ANSWER: Final = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL)


class ToolDialogue(ABC):
    """Base of environments with one tool; a subclass gives the tool and the reward.

    Args:
        codec: of the model.
        tools: runs the tool.
        before_result, after_result: around the tool's answer.
    """

    def __init__(
        self, codec: Codec, tools: ToolRunner, before_result: str = "<result>", after_result: str = "</result>"
    ) -> None:
        self._codec, self._tools = codec, tools
        self._frame = (before_result, after_result)
        self._sample = Sample("", "")
        self._calls = 0

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The end of the turn, and `</call>` where it is one token."""
        closing = self._codec.encode("</call>")
        return (self._codec.eos_id, closing[0]) if len(closing) == 1 else (self._codec.eos_id,)

    async def reset(self, sample: Sample) -> list[int]:
        """Start over with another sample; return the prompt's ids."""
        self._sample, self._calls = sample, 0
        return self._codec.prompt(sample.prompt)

    async def step(self, token_ids: Sequence[int]) -> Step:
        """Run the tool, or judge the answer; neither a call nor an answer is worth 0."""
        ids = list(token_ids)
        if ids and ids[-1] == self._codec.eos_id:
            ids.pop()
        text = self._codec.decode(ids)
        call, answer = _CALL.search(text), _ANSWER.search(text)
        if call and not (answer and answer.start() < call.start()):
            self._calls += 1
            result, worked = await self._tools.call(self.tool, call.group(1).strip())
            before, after = self._frame
            return Step(tuple(self._codec.encode(before + self.shown(result) + after)), info={"tool_worked": worked})
        reward = self.score(answer.group(1).strip(), self._sample) if answer else 0.0
        return Step(reward=reward, info={"answered": answer is not None, "tool_calls": self._calls})

    @abstractmethod
    def tool(self, argument: str) -> str:
        """Answer a call; raise `ToolError` to tell the model what was wrong with it."""

    @abstractmethod
    def score(self, answer: str, sample: Sample) -> float:
        """Return the reward of an answer."""

    def shown(self, result: str) -> str:
        """Return the tool's answer as the model sees it."""
        return result
