"""The trainer and its end of the weight transfer: what a trainer's process holds. Blocking, no Ray.

With several processes every method is called in all of them with the same arguments. The first one publishes and
answers; the others take part and return None. Ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from entr_lab.objective import Method
from entr_lab.real.attribution import VersionStore, attribute
from entr_lab.real.canary import canary_prompts, canary_reference
from entr_lab.real.config import RunConfig
from entr_lab.real.engine_settings import CANARY_SEATS
from entr_lab.real.ports import StepResult, TrainerState
from entr_lab.real.records import Completion, Rollout, SamplingSpec
from entr_lab.real.rollout_store import random_state, restore_random_state
from entr_lab.real.self_check import BehaviourError, check_behaviour, perturbed
from entr_lab.real.trainer import Trainer, load_model
from entr_lab.real.weight_transfer import SharedMemorySender, WeightManifest
from entr_lab.real.world import World, local_state, swapped

__all__ = ["Answers", "TrainerHost"]

_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Answers = list[tuple[tuple[int, ...], list[Completion]]]
"""Prompts, and what an engine sampled after each of them."""


@dataclass(slots=True)
class _Recorded:
    """A generator that says again what another one has said."""

    settings: Any
    answers: Mapping[tuple[int, ...], list[Completion]]

    async def generate(self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1) -> list[Completion]:
        return self.answers[tuple(prompt_ids)]

    async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> None:
        return None


class TrainerHost:
    """See the module.

    Args:
        config: of the run.
        model_path: local folder or hub name.
        vocabulary: ids of canaries are drawn below it.
        checkpoint: state to go on from, or None.
        world: this process among those of the trainer.

    Raises:
        EngineError: the model cannot be loaded or cannot be scored packed, or the state does not fit it.
    """

    def __init__(
        self,
        config: RunConfig,
        model_path: str | Path,
        vocabulary: int,
        checkpoint: TrainerState | None = None,
        world: World | None = None,
    ) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.method: Method = config.method.build()
        device = torch.device("cuda" if config.cluster.gpus_per_node else "cpu")
        self.trainer = Trainer(
            load_model(config.model, model_path, device),
            config.trainer,
            temperature=config.rollout.temperature,
            dtype=_DTYPES[config.model.dtype],
            world=world,
        )
        self._first = self.trainer.world.rank == 0
        if checkpoint is not None:
            self.trainer.load_state(checkpoint.weights, checkpoint.optimizer, checkpoint.counters)
            restore_random_state(checkpoint.random)
        self.prompts = canary_prompts(vocabulary)
        self.sender = SharedMemorySender(_DTYPES[config.rollout.engine_dtype]) if self._first else None
        admission = config.admission
        capacity = admission.max_inter + admission.max_intra + admission.updates_per_batch
        self._versions = VersionStore(capacity) if config.attribution.every else None

    def publish(self) -> WeightManifest | None:
        """Publish the current weights under their version."""
        # Some of the canaries, the longest among them: an update in flight interrupts the generators.
        return self._publish(self.prompts[:: -max(1, len(self.prompts) // CANARY_SEATS)])

    def _publish(self, prompts: Sequence[Sequence[int]]) -> WeightManifest | None:
        weights = self.trainer.weights(self._first)
        reference = canary_reference(self.trainer.scorer.logits, prompts)
        return None if self.sender is None else self.sender.publish(weights, self.trainer.version, reference)

    def publish_perturbed(self) -> WeightManifest | None:
        """Publish weights that differ everywhere, under the current version: the rehearsal of an update."""
        model, rank = self.trainer.scorer.model, self.trainer.world.rank
        with swapped(model, perturbed(local_state(model), seed=rank)):
            return self._publish(self.prompts)

    def release(self, manifest: WeightManifest) -> None:
        """Free the file of a version."""
        if self.sender is not None:
            self.sender.release(manifest)

    def check(self, answers: Answers, sampling: SamplingSpec, settings: Any) -> BehaviourError:
        """Compare what an engine recorded of its own sampling with the trainer's weights; see `check_behaviour`."""
        recorded = _Recorded(settings, dict(answers))
        prompts = [prompt for prompt, _ in answers]
        return asyncio.run(check_behaviour(recorded, self.trainer.scorer.logits, prompts, sampling))

    def step(self, groups: Sequence[Sequence[Rollout]], target_version: int, probe: bool) -> StepResult | None:
        """Split δ on a probe if asked to, train on the batch, publish."""
        parts: dict[str, float] = {}
        if self._versions is not None and target_version not in self._versions.versions:
            own = local_state(self.trainer.scorer.model)
            self._versions.add(target_version, {name: tensor.cpu() for name, tensor in own.items()})
        if probe and self._versions is not None:
            rollouts = [rollout for group in groups for rollout in group]
            chosen = rollouts[:: max(1, len(rollouts) // self.config.attribution.sequences)]
            chosen = chosen[: self.config.attribution.sequences]
            parts = attribute(self.trainer.scorer, self._versions, chosen, target_version).metrics
        done = self.trainer.update(groups, target_version, self.method)
        manifest = self.publish()
        return None if manifest is None else StepResult(done, manifest, parts)

    def state(self) -> TrainerState | None:
        """Return a copy of weights, optimiser, counters and random states."""
        state = self.trainer.state(self._first)
        return TrainerState(*state, random_state()) if self._first else None

    def close(self) -> None:
        """Remove what is left in shared memory."""
        if self.sender is not None:
            self.sender.close()
