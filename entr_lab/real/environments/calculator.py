"""Calculator: several turns with a tool that does one operation at a time.

    7+3*5=   <call>3*5</call> <result>15</result> <call>7+15</call> <result>22</result> <answer>22<eos>

With `operators_per_call` = 1 the model has to choose the order of the operations and to carry results along.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from entr_lab.errors import check_range
from entr_lab.real.environments.base import Codec, Sample
from entr_lab.real.environments.dialogue import ToolDialogue
from entr_lab.real.environments.expression import ExpressionError, evaluate, format_number, operators
from entr_lab.real.environments.tools import ToolError, ToolRunner

__all__ = ["Calculator"]


class Calculator(ToolDialogue):
    """One trajectory.

    Args:
        codec, tools, before_result, after_result: see `ToolDialogue`.
        operators_per_call: most operators of one call; more are refused in the tool's answer.
        terms: numbers of a generated expression.
        largest: largest of these numbers.
    """

    def __init__(
        self,
        codec: Codec,
        tools: ToolRunner,
        before_result: str = "<result>",
        after_result: str = "</result>",
        operators_per_call: int = 1,
        terms: int = 3,
        largest: int = 9,
    ) -> None:
        super().__init__(codec, tools, before_result, after_result)
        check_range("operators_per_call", operators_per_call, low=1)
        self._most = operators_per_call

    @classmethod
    def generate(cls, seed: int, index: int, terms: int = 3, largest: int = 9, **_: object) -> Sample:
        """Draw the expression `index` of a run's stream: sums and products of small numbers."""
        check_range("terms", terms, low=2, high=16)
        check_range("largest", largest, low=1, high=10**6)
        random = np.random.default_rng((seed, index))
        numbers = random.integers(0, largest + 1, terms)
        signs = random.choice(["+", "*"], terms - 1)
        text = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))
        return Sample(f"calculator-{index}", f"{text}=", format_number(evaluate(text)), "calculator")

    def tool(self, argument: str) -> str:
        """Evaluate one call."""
        try:
            if operators(argument) > self._most:
                raise ToolError(f"at most {self._most} operator" + "s" * (self._most > 1))
            return format_number(evaluate(argument))
        except ExpressionError as error:
            raise ToolError(str(error)) from None

    def score(self, answer: str, sample: Sample) -> float:
        """Return 1 if the answer is a number equal to the ground truth."""
        try:
            return float(evaluate(answer) == Fraction(str(sample.ground_truth)) and not operators(answer))
        except ExpressionError:
            return 0.0

    def shown(self, result: str) -> str:
        """Return an error as `?` where the vocabulary has no letters for it."""
        try:
            self._codec.encode(result)
        except ValueError:
            return "?"
        return result
