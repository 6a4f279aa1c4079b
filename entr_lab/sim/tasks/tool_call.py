"""A multi-turn tool-call task whose reward needs both a right choice and K turns of right format.

A prompt is K digits d_1 … d_K. Turn k is eight tokens of the policy

    THINK  style  style  CALL  tool  ARG  [hint]  ANS  SEP

where `style` is any of eight synonyms (free, high-entropy tokens), `tool` should be the right one of eight for d_k
(a fixed random map, to be learned), ARG copies d_k, and ANS answers. After ARG the environment, not the policy,
writes the hint: (d_1 + … + d_k) mod 10 if the tool was right, a random digit if not. The reward is 1 iff the last
answer is the sum of all digits mod 10 and no format error was fatal; each error is forgiven with probability
`tolerance`. Nearly deterministic format tokens beside free ones give the entropy profile of language models.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import check_range
from entr_lab.sim.streams import Purpose, stream

__all__ = ["PHASES", "Episodes", "ToolCallTask", "ToolCallWorld"]

PHASES = ("think", "style1", "style2", "call", "tool", "arg", "ans", "sep")
THINK, STYLE1, STYLE2, CALL, TOOL, ARG, ANS, SEP = range(8)

DIGITS = 10
STYLES = 8
TOOLS = 8
# The vocabulary: digits 0-9, styles 10-17, tools 18-25, then the marks; two tokens are never right.
STYLE_0 = DIGITS
TOOL_0 = STYLE_0 + STYLES
THINK_TOKEN = TOOL_0 + TOOLS
CALL_TOKEN = THINK_TOKEN + 1
SEP_TOKEN = CALL_TOKEN + 1
START_TOKEN = SEP_TOKEN + 1
VOCABULARY = 32
NO_ANSWER = DIGITS

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallTask:
    """The task's numbers; the random maps of one seed are a `ToolCallWorld`.

    Raises:
        RangeError: a number is outside its bound.
    """

    turns: int = 6
    """K, digits per prompt and turns per episode; T = 8 K tokens."""
    tolerance: float = 0.9
    """Probability that one format error is forgiven."""
    tool_prior: float = 0.6
    """Probability that the warm-start teacher picks the right tool."""
    hard_digits: int = 3
    """Digits whose right tool the teacher seldom picks."""
    hard_prior: float = 0.1
    """Probability of the right tool for those."""
    style_skew: float = 1.7
    """The teacher's k-th synonym has weight k^-style_skew."""
    format_noise: float = 0.004
    """Share of the teacher's probability that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        check_range("turns", self.turns, low=1)
        check_range("hard_digits", self.hard_digits, low=0, high=DIGITS)
        check_range("style_skew", self.style_skew, low=0)
        for name in ("tolerance", "tool_prior", "hard_prior", "format_noise"):
            check_range(name, getattr(self, name), low=0, high=1)

    @property
    def horizon(self) -> int:
        """Tokens of the policy per episode, T."""
        return len(PHASES) * self.turns

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary, V."""
        return VOCABULARY

    @property
    def feature_sizes(self) -> tuple[int, ...]:
        """Values of each window feature: phase, previous token, the one before, current digit, last answer."""
        return (len(PHASES), VOCABULARY, VOCABULARY, DIGITS + 1, DIGITS + 1)

    def world(self, seed: int) -> ToolCallWorld:
        """Draw the maps of one seed."""
        rng = stream(seed, Purpose.TASK)
        right_tool = rng.permutation(np.arange(DIGITS) % TOOLS)
        hard = np.zeros(DIGITS, dtype=bool)
        hard[rng.choice(DIGITS, self.hard_digits, replace=False)] = True
        weights = np.arange(1, STYLES + 1, dtype=np.float64) ** -self.style_skew
        styles = np.stack([rng.permutation(weights / weights.sum()) for _ in range(2)])
        return ToolCallWorld(self, right_tool, hard, styles)


@dataclass(frozen=True, slots=True)
class ToolCallWorld:
    """The fixed random maps of one seed."""

    task: ToolCallTask
    right_tool: Ints
    """`[10]`, index of the right tool for each digit."""
    hard: Bools
    """`[10]`, digits whose right tool the teacher seldom picks."""
    styles: Floats
    """`[2, 8]`, the teacher's weights of the synonyms at either position."""

    def teacher(self) -> Floats:
        """The warm-start teacher, `[8 phases, 10, V]`: for tool and ARG by digit, for ANS by hint."""
        task = self.task
        table = np.zeros((len(PHASES), DIGITS, VOCABULARY))
        for phase, token in ((THINK, THINK_TOKEN), (CALL, CALL_TOKEN), (SEP, SEP_TOKEN)):
            table[phase, :, token] = 1
        for position, phase in enumerate((STYLE1, STYLE2)):
            table[phase, :, STYLE_0 : STYLE_0 + STYLES] = self.styles[position]
        right = np.where(self.hard, task.hard_prior, task.tool_prior)
        table[TOOL, :, TOOL_0 : TOOL_0 + TOOLS] = ((1 - right) / (TOOLS - 1))[:, None]
        table[TOOL, np.arange(DIGITS), TOOL_0 + self.right_tool] = right
        for phase in (ARG, ANS):
            table[phase, np.arange(DIGITS), np.arange(DIGITS)] = 1
        return (1 - task.format_noise) * table + task.format_noise / VOCABULARY


def _allowed() -> Bools:
    """Which token is well formed at which phase, `[8, V]`; at ARG any digit (the copy is checked apart)."""
    allowed = np.zeros((len(PHASES), VOCABULARY), dtype=bool)
    for phase, low, count in (
        (THINK, THINK_TOKEN, 1),
        (STYLE1, STYLE_0, STYLES),
        (STYLE2, STYLE_0, STYLES),
        (CALL, CALL_TOKEN, 1),
        (TOOL, TOOL_0, TOOLS),
        (ARG, 0, DIGITS),
        (ANS, 0, DIGITS),
        (SEP, SEP_TOKEN, 1),
    ):
        allowed[phase, low : low + count] = True
    return allowed


ALLOWED = _allowed()


class Episodes:
    """A batch of running episodes `[S, R]`: S independent runs of R rollouts each.

    Feed the policy's tokens one step at a time: read `features`, call `step`, and after T steps ask `reward`.

    Args:
        task: the numbers.
        right_tool: `[S, 10]`, each run's map from digit to tool.
        digits: `[S, R, K]`, the prompts.
        hints: `[S, R, K]`, what the environment says after a wrong tool, in [0, 10).
        forgiven: `[S, R, T]`, whether an error at that token would be forgiven.
    """

    def __init__(self, task: ToolCallTask, right_tool: Ints, digits: Ints, hints: Ints, forgiven: Bools) -> None:
        self.task = task
        self.right_tool = right_tool
        self.digits = digits
        self.forgiven = forgiven
        self._hints = hints
        self._sums = digits.cumsum(-1) % DIGITS
        shape = digits.shape[:2]
        self._right = right_tool[np.arange(shape[0])[:, None, None], digits] + TOOL_0
        self.tokens = np.empty((*shape, task.horizon), dtype=np.int64)
        self.step_index = 0
        self.features = np.empty((*shape, 5), dtype=np.int64)
        self.features[..., 0] = THINK
        self.features[..., 1] = START_TOKEN
        self.features[..., 2] = START_TOKEN
        self.features[..., 3] = digits[..., 0]
        self.features[..., 4] = NO_ANSWER

    def step(self, token: Ints) -> None:
        """Append one token `[S, R]` of the policy to every episode and update `features` in place."""
        turn, phase = divmod(self.step_index, len(PHASES))
        self.tokens[..., self.step_index] = token
        self.step_index += 1
        features = self.features
        features[..., 2] = features[..., 1]
        features[..., 1] = token
        if phase == ARG:
            right = self.tokens[..., self.step_index - 2] == self._right[..., turn]
            features[..., 2] = token
            features[..., 1] = np.where(right, self._sums[..., turn], self._hints[..., turn])
        elif phase == SEP:
            # The answer shows only from the next turn on: within a turn, digit and answer are constant.
            answer = self.tokens[..., self.step_index - 2]
            features[..., 4] = np.where(answer < DIGITS, answer, NO_ANSWER)
            features[..., 3] = self.digits[..., min(turn + 1, self.task.turns - 1)]
        features[..., 0] = (phase + 1) % len(PHASES)

    def format_errors(self) -> Bools:
        """Which tokens `[S, R, T]` of the finished episodes broke the format."""
        phase = np.arange(self.task.horizon) % len(PHASES)
        wrong = ~ALLOWED[phase, self.tokens]
        wrong[..., ARG :: len(PHASES)] |= self.tokens[..., ARG :: len(PHASES)] != self.digits
        return wrong

    def reward(self) -> NDArray[np.float32]:
        """Reward `[S, R]` of the finished episodes, 0 or 1."""
        fatal = (self.format_errors() & ~self.forgiven).any(-1)
        earned: Bools = (self.tokens[..., self.task.horizon - 2] == self._sums[..., -1]) & ~fatal
        return earned.astype(np.float32)
