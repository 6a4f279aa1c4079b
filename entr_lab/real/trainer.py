"""The torch trainer: any Hugging Face causal language model, one process or several, one update at a time.

The order of an update is the simulator's, on real tokens: advantages of whole groups → log π of every token → the
decision (mask and denominators of the whole optimiser step) → loss of each micro-batch → gradient, clip, step. A rule
of batch scope sees all tokens of the step before any gradient, so micro-batches and processes change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entr_lab.errors import EngineError
from entr_lab.objective import Anchor, Method
from entr_lab.real.columns import UpdateColumns
from entr_lab.real.config_sections import ModelConfig, TrainerConfig
from entr_lab.real.gradient import Gradient, StepTokens
from entr_lab.real.metrics import summarise
from entr_lab.real.optimizer_state import flatten, gathered, restore
from entr_lab.real.packing import micro_batches, mini_batches, packed_length
from entr_lab.real.records import Rollout
from entr_lab.real.scoring import Scorer
from entr_lab.real.world import World, full_tensor, shard

__all__ = ["TrainStep", "Trainer", "load_model"]

_MOST_SKIPPED: Final = 3


@dataclass(frozen=True, slots=True)
class TrainStep:
    """What one update did.

    Args:
        version: weight version that it made.
        metrics: plain numbers, the same on every process; names in `metrics.METRIC_DOCS` and `diagnostics.METRICS`.
        advantage: `[B]` of each rollout, in the order of the groups.
        logp_pi: for each rollout `[n]` float32 under the weights of its optimiser step, NaN on context tokens.
        keep: for each rollout `[n]` bool, False on context tokens.
    """

    version: int
    metrics: dict[str, float]
    advantage: NDArray[np.float32]
    logp_pi: list[NDArray[np.float32]]
    keep: list[NDArray[np.bool_]]


def load_model(config: ModelConfig, path: str | Path, device: torch.device) -> nn.Module:
    """Load a causal language model for training.

    Raises:
        EngineError: the folder holds no model that transformers can read.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a library does not print
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(
            str(path),
            dtype=torch.float32,
            attn_implementation=config.attention,
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise EngineError(f"cannot load a causal language model from {str(path)!r}: {reason}") from None
    finally:
        if bars:
            logging.enable_progress_bar()
    return model.to(device)


class Trainer:
    """Owns the model, the optimiser and the weight version.

    Args:
        model: see `Scorer`; `load_model` makes one.
        config: optimisation settings.
        temperature: that rollouts are sampled at; log π is taken at the same.
        dtype: of the arithmetic, see `Scorer`.
        version: weight version of the model.
        world: this process among those of the trainer; with more than one the model is sharded.

    Raises:
        EngineError: the model cannot be scored packed (see `Scorer.check`).
    """

    def __init__(
        self,
        model: nn.Module,
        config: TrainerConfig,
        *,
        temperature: float = 1.0,
        dtype: torch.dtype = torch.float32,
        version: int = 0,
        world: World | None = None,
    ) -> None:
        self.config, self.version, self.world = config, version, world or World()
        self.device = next(model.parameters()).device
        if config.activation_checkpointing:
            model.gradient_checkpointing_enable()  # type: ignore[operator]
        model.eval()
        self.scorer = Scorer(model, temperature, dtype)
        self.scorer.check()
        # Dropout would make log π a random number; training mode only switches activation checkpointing on.
        if config.activation_checkpointing:
            model.train()
            for module in model.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0.0
        if self.world.size > 1:
            shard(self.scorer, model.base_model.layers, self.device)  # type: ignore[union-attr, arg-type]
        self.optimizer = torch.optim.AdamW(
            self.scorer.parameters(),
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            weight_decay=config.weight_decay,
        )
        self.gradient = Gradient(self.scorer, self.world, config.micro_batch_tokens, self.device)
        self._steps = 0
        self._skipped = 0

    def update(self, groups: Sequence[Sequence[Rollout]], target_version: int, method: Method) -> TrainStep:
        """Train on one batch; raises the version by `config.steps_per_batch`.

        Every process of a job is called with the same groups and takes its share of them.

        Args:
            groups: rollouts of each prompt, whole groups.
            target_version: version that the update starts from.
            method: rule, anchor, weight, surrogate, reduction, advantage.

        Raises:
            EngineError: the trainer is not at `target_version`, or the gradient was not finite three times in a row.
            DataError: there is nothing to train on.
        """
        if target_version != self.version:
            raise EngineError(f"the update starts from version {target_version}, but the trainer has {self.version}.")
        started = perf_counter()
        columns = UpdateColumns.of(groups, method.advantage)
        parts = mini_batches([len(group) for group in groups], self.config.mini_batches)
        prox = self.gradient.proximal(columns, parts, self.version) if method.anchor is Anchor.PROXIMAL else None
        first: list[StepTokens] = []
        records: list[dict[str, float]] = []
        for epoch in range(self.config.epochs):
            for part in parts:
                whole = self.gradient.accumulate(columns, part, method, self.version, prox)
                norm, skipped = self._step()
                if epoch == 0:
                    first.append(whole)
                loss, entropy = whole.sums.tolist()
                entropy /= whole.tokens.n_tokens
                records.append({"loss": loss, "entropy_pi": entropy, "grad_norm": norm, "step_skipped": float(skipped)})
        metrics = {name: float(np.mean([record[name] for record in records])) for name in records[0]}
        metrics |= summarise(columns, [(done.tokens, done.keep, done.weight) for done in first], target_version)
        metrics["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        metrics["update_seconds"] = perf_counter() - started
        return TrainStep(self.version, metrics, columns.advantage.numpy(), *self._per_rollout(columns, first))

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> list[NDArray[np.float32]]:
        """Return log π of every rollout's trainable tokens under the current weights (one process's own forward)."""
        columns = UpdateColumns(tuple(rollouts), torch.zeros(0), torch.zeros(0))
        scored: list[Any] = [None] * len(rollouts)
        (bins,) = micro_batches([packed_length(rollout) for rollout in rollouts], self.config.micro_batch_tokens)
        for sequences in bins:
            logp = self.scorer(self.scorer.pack([rollouts[i] for i in sequences]).to(self.device)).logp
            for index, piece in zip(sequences, columns.split(sequences, logp), strict=True):
                scored[index] = piece.float().cpu().numpy()
        return scored

    def weights(self, keep: bool = True) -> dict[str, Tensor]:
        """Return whole tensors on the CPU under Hugging Face names, as publishing and export want them (collective).

        Args:
            keep: False in a process that only takes part; it returns nothing.
        """
        return gathered(self.scorer.model.state_dict(), keep)

    def state(self, keep: bool = True) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, int]]:
        """Return (weights, optimiser tensors, counters), all that a resume needs of the trainer; see `weights`."""
        counters = {"version": self.version, "steps": self._steps, "skipped": self._skipped}
        return self.weights(keep), flatten(self.scorer.model, self.optimizer, keep), counters

    def load_state(self, weights: dict[str, Tensor], optimizer: dict[str, Tensor], counters: dict[str, int]) -> None:
        """Take up where `state` left off.

        Raises:
            EngineError: names or shapes do not fit the model.
        """
        restore(self.scorer.model, self.optimizer, weights, optimizer)
        self.version, self._steps, self._skipped = (counters[name] for name in ("version", "steps", "skipped"))

    def _step(self) -> tuple[float, bool]:
        """Clip and apply the gradient; return its norm before the clip and whether the step was skipped."""
        group = self.optimizer.param_groups[0]
        group["lr"] = self.config.learning_rate * min(1.0, (self._steps + 1) / max(1, self.config.warmup_steps))
        norm = nn.utils.clip_grad_norm_(self.scorer.parameters(), self.config.max_grad_norm)
        norm_value = float(full_tensor(norm))
        finite = math.isfinite(norm_value)
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._steps += 1
        self.version += 1
        self._skipped = 0 if finite else self._skipped + 1
        if self._skipped == _MOST_SKIPPED:
            raise EngineError(
                f"the gradient was not finite in {_MOST_SKIPPED} optimiser steps in a row, up to version "
                f"{self.version}; resume from the last checkpoint with a lower trainer.learning_rate."
            )
        return norm_value, not finite

    def _per_rollout(
        self, columns: UpdateColumns, passes: Sequence[StepTokens]
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.bool_]]]:
        logp_pi = [np.full(len(r.token_ids), np.nan, dtype=np.float32) for r in columns.rollouts]
        keep = [np.zeros(len(r.token_ids), dtype=np.bool_) for r in columns.rollouts]
        for done in passes:
            logps, keeps = (columns.split(done.sequences, c.cpu()) for c in (done.tokens.logp_pi, done.keep))
            for index, logp, kept in zip(done.sequences, logps, keeps, strict=True):
                trainable = columns.rollouts[index].trainable
                logp_pi[index][trainable] = logp.float().numpy()
                keep[index][trainable] = kept.numpy()
        return logp_pi, keep
