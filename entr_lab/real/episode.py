"""One trajectory from prompt to reward: a generator and an environment take turns. Token in, token out.

What the model sampled goes into the next prompt as it is. Context that the environment adds carries no behaviour
record: its rows hold NaN and are never trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from entr_lab.errors import EngineError
from entr_lab.real.environments.base import Environment, Sample
from entr_lab.real.records import Completion, Rollout, SamplingSpec

__all__ = ["SamplesTokens", "play"]


class SamplesTokens(Protocol):
    """What an episode needs of a generator."""

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """Return `n` completions of one prompt."""


@dataclass(slots=True)
class _Track:
    """Columns of a trajectory that grows by pieces."""

    token_ids: list[NDArray[np.int32]] = field(default_factory=list)
    trainable: list[NDArray[np.bool_]] = field(default_factory=list)
    behaviour: list[NDArray[np.float32]] = field(default_factory=list)
    versions: list[NDArray[np.int64]] = field(default_factory=list)
    turns: list[NDArray[np.int32]] = field(default_factory=list)
    length: int = 0

    def sampled(self, completion: Completion, turn: int) -> None:
        columns = (completion.logp_mu, completion.entropy_mu, completion.collision_mu)
        self._add(completion.token_ids, True, np.stack(columns), completion.weight_version, turn)

    def context(self, ids: Sequence[int], turn: int) -> None:
        version = np.full(len(ids), self.versions[-1][-1], dtype=np.int64)
        empty = np.full((3, len(ids)), np.nan, dtype=np.float32)
        self._add(np.array(ids, dtype=np.int32), False, empty, version, turn)

    def _add(
        self,
        ids: NDArray[np.int32],
        trainable: bool,
        behaviour: NDArray[np.float32],
        versions: NDArray[np.int64],
        turn: int,
    ) -> None:
        self.token_ids.append(ids)
        self.trainable.append(np.full(len(ids), trainable))
        self.behaviour.append(behaviour)
        self.versions.append(versions)
        self.turns.append(np.full(len(ids), turn, dtype=np.int32))
        self.length += len(ids)

    def rollout(self, prompt: Sequence[int], reward: float, sample: Sample, info: dict[str, Any]) -> Rollout:
        logp_mu, entropy_mu, collision_mu = np.concatenate(self.behaviour, axis=1)
        return Rollout(
            prompt_ids=np.array(prompt, dtype=np.int32),
            token_ids=np.concatenate(self.token_ids).astype(np.int32),
            trainable=np.concatenate(self.trainable),
            logp_mu=logp_mu,
            entropy_mu=entropy_mu,
            collision_mu=collision_mu,
            weight_version=np.concatenate(self.versions),
            turn=np.concatenate(self.turns),
            reward=reward,
            sample={"id": sample.id, "source": sample.source, "ground_truth": sample.ground_truth},
            info=info,
        )


async def play(
    environment: Environment,
    sample: Sample,
    generator: SamplesTokens,
    sampling: SamplingSpec,
    *,
    max_tokens: int,
    max_turns: int,
    request_id: str | None = None,
) -> Rollout:
    """Play one trajectory to its end.

    A trajectory that runs out of tokens or turns before the environment judged it is worth 0 and is marked
    `truncated` in its info.

    Args:
        environment: a fresh one.
        sample: the prompt's item.
        generator: samples completions.
        sampling: how; its `max_tokens` and stop tokens are set here.
        max_tokens: tokens after the prompt, context included.
        max_turns: completions.
        request_id: stem of the request's names.

    Raises:
        EngineError: the generator failed, or a completion was aborted; report the trajectory as failed.
    """
    prompt = await environment.reset(sample)
    history, track = list(prompt), _Track()
    stops = tuple(dict.fromkeys((*sampling.stop_token_ids, *environment.stop_ids)))
    info: dict[str, Any] = {"truncated": False}
    for turn in range(max_turns):
        here = replace(sampling, max_tokens=max_tokens - track.length, stop_token_ids=stops)
        name = None if request_id is None else f"{request_id}/{turn}"
        (completion,) = await generator.generate(history, here, 1, name)
        if completion.finish_reason == "abort" or not len(completion.token_ids):
            raise EngineError(f"the completion of sample {sample.id!r} was aborted in turn {turn}.")
        track.sampled(completion, turn)
        sampled = completion.token_ids.tolist()
        history += sampled
        step = await environment.step(sampled)
        info |= step.info
        if step.reward is not None:
            return track.rollout(prompt, step.reward, sample, info)
        room = max_tokens - track.length - len(step.context_ids)
        if room < 1 or turn + 1 == max_turns:
            break
        if step.context_ids:
            track.context(step.context_ids, turn)
            history += step.context_ids
    info["truncated"] = True
    return track.rollout(prompt, 0.0, sample, info)
