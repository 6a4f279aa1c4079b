"""Teachers of the tiny model: noisy demonstrations with the exact distribution that each token was drawn from.

Training on the distributions and not on the samples alone makes the warm start several times faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import check_range
from entr_lab.real.environments.noted_sum import DIGITS, FIRST, SECOND, STEP_TOKENS, TOOLS
from entr_lab.real.environments.vocabulary import PIECES, FixedVocabulary

__all__ = ["TEACHERS", "CalculatorTeacher", "Demonstrations", "NotedSumTeacher", "Teacher"]

_VOCABULARY: Final = FixedVocabulary()


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """A batch of demonstrations, padded at the end.

    Args:
        ids: `[B, T]` int64, prompt and response.
        targets: `[B, T, V]` float32 distribution of the token *after* each place; all zero where nothing is learnt.
        weights: `[B, T]` float32 weight of each place in the loss; the hard tokens have more.
    """

    ids: NDArray[np.int64]
    targets: NDArray[np.float32]
    weights: NDArray[np.float32]


class Teacher(Protocol):
    """Draws demonstrations; a frozen dataclass, since its fields are part of the recipe."""

    def draw(self, random: np.random.Generator, count: int) -> Demonstrations:
        """Return `count` demonstrations."""

    def reliable(self) -> Teacher:
        """Return the teacher without its mistakes; what is to be learnt shows faster then."""


_EMPHASIS: Final = 4.0
"""Weight of a running sum in the loss; it is one token in six, and the last to be learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSumTeacher:
    """Noted sums with an unreliable choice of tool.

    Args:
        digits: K.
        task_seed: of the maps: synonyms' weights, the right tool of each digit, which digits are hard.
        right_tool: P(right tool) for an easy digit.
        hard_digits: number of digits whose tool the teacher seldom knows.
        hard_right_tool: P(right tool) for those.
        slip: P(random s although the tool was right).
        noise: P(any token instead of the intended one).

    s is the sum of the s before it and the digit, modulo 10, if the tool was right, else a random digit.
    """

    digits: int = 6
    task_seed: int = 0
    right_tool: float = 0.95
    hard_digits: int = 3
    hard_right_tool: float = 0.30
    slip: float = 0.01
    noise: float = 0.001

    def __post_init__(self) -> None:
        check_range("digits", self.digits, low=1, high=32)
        check_range("hard_digits", self.hard_digits, low=0, high=10)
        for name in ("right_tool", "hard_right_tool", "slip", "noise"):
            check_range(name, getattr(self, name), low=0, high=1)

    def reliable(self) -> NotedSumTeacher:
        """Return the teacher that always has the right tool and never slips."""
        return replace(self, right_tool=1.0, hard_right_tool=1.0, slip=0.0)

    def draw(self, random: np.random.Generator, count: int) -> Demonstrations:
        """Return `count` demonstrations."""
        first, second, tool, right = self._maps()
        n_pieces, k = len(PIECES), self.digits
        digits = random.integers(0, 10, (count, k))
        ids = np.zeros((count, k + 3 + STEP_TOKENS * k), dtype=np.int64)
        ids[:, 0], ids[:, k + 1] = _VOCABULARY.ids["<bos>"], _VOCABULARY.ids["="]
        digit_ids, first_ids, second_ids, tool_ids = map(_ids, (DIGITS, FIRST, SECOND, TOOLS))
        ids[:, 1 : k + 1] = digit_ids[digits]
        targets = np.zeros((*ids.shape, n_pieces), dtype=np.float32)
        total, place = np.zeros(count, dtype=np.int64), k + 2

        def emit(choices: NDArray[np.int64], probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
            """Write one token; return which of the choices it is, −1 if none."""
            nonlocal place
            full = np.full((count, n_pieces), self.noise / n_pieces)
            full[:, choices] += (1 - self.noise) * probabilities
            targets[:, place - 1] = full
            token = (full.cumsum(-1) > random.random((count, 1)) * full.sum(-1, keepdims=True)).argmax(-1)
            ids[:, place] = token
            place += 1
            found: NDArray[np.int64] = (token[:, None] == choices).astype(np.int64)
            return np.where(found.any(-1), found.argmax(-1), -1)

        for step in range(k):
            digit = digits[:, step]
            word = emit(first_ids, np.broadcast_to(first, (count, len(FIRST))))
            emit(second_ids, second[word])
            chosen = emit(tool_ids, tool[digit])
            emit(digit_ids, np.eye(10)[digit])
            known = np.where(chosen == right[digit], 1 - self.slip, 0.0)[:, None]
            total = emit(digit_ids, known * np.eye(10)[(total + digit) % 10] + (1 - known) / 10)
            emit(_ids(";"), np.ones((count, 1)))
        emit(np.array([_VOCABULARY.eos_id]), np.ones((count, 1)))
        weights = np.ones(ids.shape, dtype=np.float32)
        weights[:, k + STEP_TOKENS - 1 : -2 : STEP_TOKENS] = _EMPHASIS
        return Demonstrations(ids, targets, weights)

    def _maps(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Return P(w1) `[8]`, P(w2 | w1) `[8, 8]`, P(tool | digit) `[10, 8]` and the right tool `[10]`."""
        random = np.random.default_rng((self.task_seed, 0x5EED))
        first = _softmax(1.2 * random.standard_normal(len(FIRST)))
        second = _softmax(1.5 * random.standard_normal((len(FIRST), len(SECOND))))
        right = random.permutation(np.arange(10) % len(TOOLS))
        known = np.full(10, self.right_tool)
        known[random.choice(10, self.hard_digits, replace=False)] = self.hard_right_tool
        rest = _softmax(random.standard_normal((10, len(TOOLS))))
        rest[np.arange(10), right] = 0.0
        tool = (1 - known)[:, None] * rest / rest.sum(-1, keepdims=True)
        tool[np.arange(10), right] = known
        return first, second, tool, right


@dataclass(frozen=True, slots=True, kw_only=True)
class CalculatorTeacher:
    """Calculator dialogues for `a o b p c`, with an unreliable order of the operations.

    Args:
        largest: largest number of an expression.
        right_order: P(right operation first) where the order matters.
    """

    largest: int = 9
    right_order: float = 0.4

    def __post_init__(self) -> None:
        check_range("largest", self.largest, low=1, high=99)
        check_range("right_order", self.right_order, low=0, high=1)

    def reliable(self) -> CalculatorTeacher:
        """Return the teacher that keeps the order of the operations."""
        return replace(self, right_order=1.0)

    def draw(self, random: np.random.Generator, count: int) -> Demonstrations:
        """Return `count` demonstrations."""
        texts = [self._dialogue(random) for _ in range(count)]
        length = max(len(pieces) for pieces, _ in texts)
        ids = np.zeros((count, length), dtype=np.int64)
        targets = np.zeros((count, length, len(PIECES)), dtype=np.float32)
        for row, (pieces, soft) in enumerate(texts):
            ids[row, : len(pieces)] = pieces
            for place, choice in soft.items():
                targets[row, place - 1] = choice
        return Demonstrations(ids, targets, np.ones(ids.shape, dtype=np.float32))

    def _dialogue(self, random: np.random.Generator) -> tuple[list[int], dict[int, NDArray[np.float32]]]:
        """Return the ids and, for each place that the policy writes, its distribution."""
        a, b, c = (int(x) for x in random.integers(0, self.largest + 1, 3))
        o, p = (str(x) for x in random.choice(["+", "*"], 2))
        late_first = p == "*" and o == "+"
        right = random.random() < self.right_order
        late = late_first == right
        inner, rest = (f"{b}{p}{c}", (f"{a}{o}", "")) if late else (f"{a}{o}{b}", ("", f"{p}{c}"))
        middle = _value(inner)
        outer = f"{rest[0]}{middle}{rest[1]}"
        parts = [
            (f"<bos>{a}{o}{b}{p}{c}=", False),
            (f"<call>{inner}</call>", True),
            (f"<result>{middle}</result>", False),
            (f"<call>{outer}</call>", True),
            (f"<result>{_value(outer)}</result>", False),
            (f"<answer>{_value(outer)}<eos>", True),
        ]
        ids: list[int] = []
        soft: dict[int, NDArray[np.float32]] = {}
        for text, written in parts:
            for token in _VOCABULARY.encode(text):
                if written:
                    soft[len(ids)] = np.eye(len(PIECES), dtype=np.float32)[token]
                ids.append(token)
        return ids, soft


TEACHERS: Final[dict[str, type[NotedSumTeacher] | type[CalculatorTeacher]]] = {
    "noted-sum": NotedSumTeacher,
    "calculator": CalculatorTeacher,
}


def _value(text: str) -> int:
    left, sign, right = text.partition("+" if "+" in text else "*")
    return int(left) + int(right) if sign == "+" else int(left) * int(right)


def _ids(pieces: str) -> NDArray[np.int64]:
    return np.array([_VOCABULARY.ids[piece] for piece in pieces])


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    mass = np.exp(logits - logits.max(-1, keepdims=True))
    normalised: NDArray[np.float64] = mass / mass.sum(-1, keepdims=True)
    return normalised
