"""The trainer and its end of the weight transfer: what the trainer's process holds. Blocking, no Ray. Ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from entr_lab.objective import Method
from entr_lab.real.attribution import VersionStore, attribute
from entr_lab.real.canary import canary_prompts, canary_reference, model_logits
from entr_lab.real.config import RunConfig
from entr_lab.real.ports import StepResult, TrainerState
from entr_lab.real.records import Completion, Rollout, SamplingSpec
from entr_lab.real.rollout_store import random_state, restore_random_state
from entr_lab.real.self_check import BehaviourError, check_behaviour, perturbed
from entr_lab.real.trainer import Trainer, load_model
from entr_lab.real.weight_transfer import SharedMemorySender, WeightManifest, without_ties

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

    Raises:
        EngineError: the model cannot be loaded or cannot be scored packed, or the state does not fit it.
    """

    def __init__(
        self, config: RunConfig, model_path: str | Path, vocabulary: int, checkpoint: TrainerState | None = None
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
        )
        if checkpoint is not None:
            self.trainer.load_state(checkpoint.weights, checkpoint.optimizer, checkpoint.counters)
            restore_random_state(checkpoint.random)
        self.prompts = canary_prompts(vocabulary)
        self.sender = SharedMemorySender(_DTYPES[config.rollout.engine_dtype])
        admission = config.admission
        capacity = admission.max_inter + admission.max_intra + admission.updates_per_batch
        self._versions = VersionStore(capacity) if config.attribution.every else None

    def publish(self) -> WeightManifest:
        """Publish the current weights under their version."""
        return self._publish(self._state())

    def publish_perturbed(self) -> WeightManifest:
        """Publish weights that differ everywhere, under the current version: the rehearsal of an update."""
        return self._publish(perturbed(self._state()))

    def release(self, manifest: WeightManifest) -> None:
        """Free the file of a version."""
        self.sender.release(manifest)

    def check(self, answers: Answers, sampling: SamplingSpec, settings: Any) -> BehaviourError:
        """Compare what an engine recorded of its own sampling with the trainer's weights; see `check_behaviour`."""
        recorded = _Recorded(settings, dict(answers))
        prompts = [prompt for prompt, _ in answers]
        return asyncio.run(check_behaviour(recorded, model_logits(self.trainer.scorer.model), prompts, sampling))

    def step(self, groups: Sequence[Sequence[Rollout]], target_version: int, probe: bool) -> StepResult:
        """Split δ on a probe if asked to, train on the batch, publish."""
        parts: dict[str, float] = {}
        if self._versions is not None and target_version not in self._versions.versions:
            self._versions.add(target_version, self.trainer.weights())
        if probe and self._versions is not None:
            rollouts = [rollout for group in groups for rollout in group]
            chosen = rollouts[:: max(1, len(rollouts) // self.config.attribution.sequences)]
            chosen = chosen[: self.config.attribution.sequences]
            parts = attribute(self.trainer.scorer, self._versions, chosen, target_version).metrics
        done = self.trainer.update(groups, target_version, self.method)
        return StepResult(done, self.publish(), parts)

    def state(self) -> TrainerState:
        """Return a copy of weights, optimiser, counters and random states."""
        return TrainerState(*self.trainer.state(), random_state())

    def close(self) -> None:
        """Remove what is left in shared memory."""
        self.sender.close()

    def _state(self) -> dict[str, torch.Tensor]:
        state = self.trainer.scorer.model.state_dict(keep_vars=True)
        return {name: tensor.detach() for name, tensor in state.items()}

    def _publish(self, weights: dict[str, torch.Tensor]) -> WeightManifest:
        model = self.trainer.scorer.model
        reference = canary_reference(model_logits(model, without_ties(weights)), self.prompts)
        return self.sender.publish(weights, self.trainer.version, reference)
