"""A loop without engine and without torch models: tokens are counters, weights are version numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from entr_lab.errors import EngineError
from entr_lab.pipeline import Batch, Event, Pipeline, PipelineConfig
from entr_lab.real.environments.base import Sample
from entr_lab.real.loop import Loop
from entr_lab.real.loop_settings import LoopSettings
from entr_lab.real.ports import StepResult, TrainerState
from entr_lab.real.prompt_feed import PromptFeed
from entr_lab.real.records import Completion, Rollout, SamplingSpec
from entr_lab.real.rollout_buffer import RolloutBuffer
from entr_lab.real.trainer import TrainStep
from entr_lab.real.weight_transfer import WeightManifest


class Stream:
    """Samples whose reward is their number's parity."""

    def sample(self, index: int) -> Sample:
        return Sample(f"s{index}", "x", index, "ab"[index % 2])


class PaperGenerator:
    """Every token carries the version loaded when it was made; may be killed, and may refuse an update."""

    def __init__(self, *, tokens: int = 6, pace: float = 0.0, seed: int = 0) -> None:
        self.version = -1
        self.dead = False
        self.loads: list[int] = []
        self.cancelled: list[str] = []
        self.revived = 0
        self.refuse: Exception | None = None
        self.most = tokens
        self.pace = pace
        self._random = np.random.default_rng(seed)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        try:
            return await self.sample(prompt_ids, sampling)
        except asyncio.CancelledError:
            self.cancelled.append(str(request_id))
            raise

    async def sample(self, prompt_ids: Sequence[int], sampling: SamplingSpec) -> list[Completion]:
        length = min(sampling.max_tokens, int(self._random.integers(1, self.most + 1)))
        versions = []
        for _ in range(length):
            await asyncio.sleep(self.pace)
            if self.dead:
                raise EngineError("the engine core died")
            versions.append(self.version)
        column = np.full(len(versions), 0.5, dtype=np.float32)
        reason = "length" if len(versions) == sampling.max_tokens else "stop"
        ids = np.arange(len(versions), dtype=np.int32)
        return [Completion(ids, -column, column, column, np.array(versions, dtype=np.int64), reason)]

    async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> None:
        await asyncio.sleep(self.pace)
        if self.dead:
            raise EngineError("the engine core died")
        if self.refuse is not None:
            raise self.refuse
        self.version = manifest.version
        self.loads.append(manifest.version)
        await asyncio.sleep(self.pace)  # the proof; running requests have new tokens already

    async def health(self) -> dict[str, Any]:
        if self.dead:
            raise EngineError("the engine core died")
        return {"version": self.version}

    async def revive(self, manifest: WeightManifest) -> None:
        self.dead = False
        self.revived += 1
        await self.update_weights(manifest, clear_cache=True)


class PaperTrainer:
    """Raises its version and remembers what it was trained on."""

    def __init__(self, updates: int = 1, pace: float = 0.0, version: int = 0) -> None:
        self.version, self.updates, self.pace = version, updates, pace
        self.seen: list[tuple[int, list[list[Rollout]]]] = []
        self.released: list[int] = []
        self.broken: Exception | None = None
        self.dies_at: int | None = None

    async def publish(self) -> WeightManifest:
        return WeightManifest(self.version)

    async def step(self, groups: Sequence[Sequence[Rollout]], target_version: int, probe: bool) -> StepResult:
        assert target_version == self.version
        await asyncio.sleep(self.pace)
        if self.dies_at == target_version:
            self.broken = EngineError("the trainer's process is gone; resume from the last checkpoint.")
        if self.broken is not None:
            raise self.broken
        self.seen.append((target_version, [list(group) for group in groups]))
        self.version += self.updates
        rollouts = [rollout for group in groups for rollout in group]
        reward = float(np.mean([rollout.reward for rollout in rollouts]))
        keep = [rollout.trainable.copy() for rollout in rollouts]
        advantage = np.zeros(len(rollouts), dtype=np.float32)
        step = TrainStep(self.version, {"reward_mean": reward}, advantage, [r.logp_mu for r in rollouts], keep)
        return StepResult(step, WeightManifest(self.version), {"delta_rms": 0.5} if probe else {})

    async def release(self, manifest: WeightManifest) -> None:
        self.released.append(manifest.version)

    async def state(self) -> TrainerState:
        weights = {"w": torch.full((2,), float(self.version))}
        return TrainerState(weights, {}, {"version": self.version, "steps": self.version, "skipped": 0}, {})


async def play(generator: Any, sample: int, request: str) -> Rollout:
    """One turn of at most 12 tokens."""
    (done,) = await generator.generate([sample], SamplingSpec(max_tokens=12), 1, f"{request}/0")
    n = len(done.token_ids)
    if not n:
        raise EngineError("aborted")
    return Rollout(
        prompt_ids=np.array([sample], dtype=np.int32),
        token_ids=done.token_ids,
        trainable=np.ones(n, dtype=bool),
        logp_mu=done.logp_mu,
        entropy_mu=done.entropy_mu,
        collision_mu=done.collision_mu,
        weight_version=done.weight_version,
        turn=np.zeros(n, dtype=np.int32),
        reward=float(sample % 2),
        sample={"id": f"s{sample}", "source": "toy"},
    )


class Bench:
    """A loop with its parts at hand."""

    def __init__(
        self,
        config: PipelineConfig,
        *,
        batches: int = 6,
        slots: int = 6,
        trainer: PaperTrainer | None = None,
        generators: dict[str, PaperGenerator] | None = None,
        play: Any = play,
        **options: Any,
    ) -> None:
        self.events: list[Event] = []
        self.buffer = RolloutBuffer()
        self.pipeline = Pipeline(config, closed=self.buffer.closed, log=self.events.append)
        self.trainer = trainer or PaperTrainer(config.admission.updates_per_batch)
        self.generators = generators or {"g0": PaperGenerator(), "g1": PaperGenerator(seed=1)}
        self.reports: list[Any] = []
        settings = {name: options.pop(name) for name in ("probe_every", "save_every") if name in options}
        self.loop = Loop(
            self.pipeline,
            self.buffer,
            self.trainer,
            self.generators,
            play,
            PromptFeed(Stream()),
            LoopSettings(batches=batches, slots=slots, max_tokens=12, **settings),
            on_step=self.reports.append,
            **options,
        )

    def run(self, timeout: float = 60.0) -> None:
        asyncio.run(asyncio.wait_for(self.loop.run(), timeout))

    @property
    def batches(self) -> list[Batch]:
        return [report.batch for report in self.reports]
