"""The base policy of a seed: supervised training towards the task's soft teacher. Shared by all methods of the seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.learner import Adam, AdamSettings
from entr_lab.sim.policy import Folded, PolicyShape, Weights, backward, fold, forward, unfold_gradient
from entr_lab.sim.streams import Purpose, stream
from entr_lab.sim.tasks import Episodes, ToolCallWorld
from entr_lab.sim.tasks.tool_call import ANS, ARG, DIGITS, PHASES, TOOL

__all__ = ["WarmStart", "warm_start"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Settings of the supervised phase.

    Raises:
        RangeError: a number is outside its bound.
    """

    steps: int = 400
    tokens: int = 512
    """Tokens per step."""
    episodes: int = 1024
    """Episodes of the teacher that the tokens are drawn from."""
    first_rate: float = 3e-3
    last_rate: float = 3e-4

    def __post_init__(self) -> None:
        check_range("steps", self.steps, low=0)
        check_range("tokens", self.tokens, low=1)
        check_range("episodes", self.episodes, low=1)
        check_range("first_rate", self.first_rate, low=0)
        check_range("last_rate", self.last_rate, low=0)


def warm_start(settings: WarmStart, shape: PolicyShape, world: ToolCallWorld, seed: int) -> Tensor:
    """Return the flat parameters `[P]` of the seed's base policy.

    Cross-entropy to the teacher's full distribution, Adam, learning rate falling linearly from first to last.
    """
    flat = torch.from_numpy(shape.initial(seed))[None]
    weights = Weights.views(shape, flat)
    adam = Adam(AdamSettings(learning_rate=settings.first_rate), flat)
    folded, slope = Folded.empty(shape, 1), Folded.empty(shape, 1)
    gradient = torch.empty_like(flat)
    gradient_views = Weights.views(shape, gradient)
    rng = stream(seed, Purpose.TEACHER)
    features, answers = _teacher_tokens(world, settings.episodes, rng)
    rows = torch.from_numpy(features + np.array(shape.offsets))
    targets = torch.from_numpy(world.teacher().reshape(-1, shape.vocabulary).astype(np.float32))
    picks = torch.from_numpy(rng.integers(0, len(rows), (settings.steps, settings.tokens)))
    for step in range(settings.steps):
        fold(shape, weights, folded)
        here = rows[picks[step]]
        kept = forward(folded.at(0), here)
        d_logits = kept.shifted.softmax(-1).sub_(targets[answers[picks[step]]]).div_(settings.tokens)
        backward(folded.at(0), here, kept, d_logits, slope.at(0))
        unfold_gradient(shape, weights, slope, gradient_views)
        share = step / max(1, settings.steps - 1)
        adam.step(gradient, settings.first_rate + share * (settings.last_rate - settings.first_rate))
    return flat[0]


def _teacher_tokens(world: ToolCallWorld, episodes: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Tensor]:
    """Play the teacher; return features `[episodes · T, 5]` and each token's row of the flattened teacher."""
    task = world.task
    digits = rng.integers(0, DIGITS, (1, episodes, task.turns))
    hints = rng.integers(0, DIGITS, (1, episodes, task.turns))
    forgiven = np.ones((1, episodes, task.horizon), dtype=bool)
    play = Episodes(task, world.right_tool[None], digits, hints, forgiven)
    below = world.teacher().cumsum(-1)
    below[..., -1] = 1.0
    features, answers = [], []
    for t in range(task.horizon):
        phase = t % len(PHASES)
        here = play.features[0]
        key = here[:, 3] if phase in (TOOL, ARG) else here[:, 1] if phase == ANS else np.zeros(episodes, dtype=np.int64)
        features.append(here.copy())
        answers.append(phase * DIGITS + key)
        play.step((below[phase, key] >= rng.random((episodes, 1))).argmax(-1)[None])
    return np.concatenate(features), torch.from_numpy(np.concatenate(answers))
