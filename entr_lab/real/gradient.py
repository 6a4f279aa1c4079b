"""The gradient of one optimiser step: micro-batches, one decision for all of them, all processes together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from entr_lab.objective import (
    Decision,
    Denominator,
    Method,
    coefficients,
    decide,
    decide_micro_batches,
    policy_loss,
)
from entr_lab.real.columns import UpdateColumns
from entr_lab.real.packing import micro_batches, packed_length
from entr_lab.real.scoring import Scorer
from entr_lab.real.world import World
from entr_lab.rules import Scope
from entr_lab.tokens import TokenBatch, concatenate

__all__ = ["Gradient", "StepTokens"]

Proximal = dict[int, Tensor] | None
"""log π of each sequence under the weights that the batch started from, where the method anchors on it."""


@dataclass(frozen=True, slots=True)
class StepTokens:
    """One optimiser step: its sequences in the order of their tokens, the tokens, masks and weights.

    Args:
        sequences: numbers of the sequences.
        tokens: their trainable tokens.
        keep: `[N]` bool.
        weight: `[N]` total weight of the loss.
        sums: `[2]`: the loss, and the entropy of π summed over tokens.
    """

    sequences: list[int]
    tokens: TokenBatch
    keep: Tensor
    weight: Tensor
    sums: Tensor


@dataclass(frozen=True, slots=True)
class Gradient:
    """Puts the gradient of one optimiser step into the parameters of a scorer.

    Args:
        scorer: the model.
        world: this process among those of the trainer.
        budget: tokens of one forward pass.
        device: that the model lies on.
    """

    scorer: Scorer
    world: World
    budget: int
    device: torch.device

    def accumulate(
        self, columns: UpdateColumns, part: Sequence[int], method: Method, version: int, prox: Proximal
    ) -> StepTokens:
        """Backpropagate the loss of the sequences `part`; return the step of all processes, on each of them.

        Args:
            columns: the whole batch.
            part: sequences of this optimiser step.
            method: what makes the loss.
            version: weight version that the step starts from.
            prox: from `proximal`, or None.
        """
        plan = self.plan(columns, part)
        return self._gather(columns, plan, self._own(columns, plan[self.world.rank], method, version, prox))

    def plan(self, columns: UpdateColumns, part: Sequence[int]) -> list[list[list[int]]]:
        """Return, for each process, the sequences of its micro-batches."""
        lengths = [packed_length(columns.rollouts[index]) for index in part]
        spread = micro_batches(lengths, self.budget, self.world.size)
        return [[[part[i] for i in micro] for micro in bins] for bins in spread]

    def _tokens(
        self, columns: UpdateColumns, sequences: list[int], version: int, prox: Proximal
    ) -> tuple[TokenBatch, Tensor]:
        """Score some sequences under the current weights; return their batch and the entropy of π."""
        scores = self.scorer(self.scorer.pack([columns.rollouts[index] for index in sequences]).to(self.device))
        logp_prox = None if prox is None else torch.cat([prox[index] for index in sequences])
        return columns.batch(sequences, scores.logp, version, logp_prox), scores.entropy

    @torch.no_grad()
    def proximal(self, columns: UpdateColumns, parts: Sequence[Sequence[int]], version: int) -> dict[int, Tensor]:
        """Return log π of this process's sequences under the weights that the batch starts from."""
        found: dict[int, Tensor] = {}
        for part in parts:
            for sequences in self.plan(columns, part)[self.world.rank]:
                logp = self._tokens(columns, sequences, version, None)[0].logp_pi
                found |= zip(sequences, columns.split(sequences, logp), strict=True)
        return found

    def _decider(
        self, columns: UpdateColumns, bins: list[list[int]], method: Method, version: int, prox: Proximal
    ) -> Callable[[int, TokenBatch], Decision]:
        """Return what decides micro-batch i; it is as if the optimiser step were one undivided batch."""
        reduce = self.world.reduce
        if len(bins) == 1:
            return lambda _, batch: decide(method, batch, reduce)
        if method.rule.scope is Scope.TOKEN and method.reduction.denominator is not Denominator.TOKEN_MEAN_KEPT:
            # Nothing depends on another token's log π: one forward pass is enough.
            sequences = [index for micro in bins for index in micro]
            counts = [sum(int(columns.rollouts[index].trainable.sum()) for index in micro) for micro in bins]
            blank = columns.batch(sequences, torch.zeros(sum(counts), device=self.device), version)
            everything = torch.ones_like(blank.logp_pi, dtype=torch.bool)
            share = coefficients(method.reduction, blank, everything, reduce).expand(everything.shape)
            shares = torch.split(share, counts)
            return lambda index, batch: Decision(method.rule.keep(batch, reduce), shares[index])
        with torch.no_grad():
            batches = [self._tokens(columns, sequences, version, prox)[0] for sequences in bins]
        decisions = decide_micro_batches(method, batches, reduce)
        return lambda index, _: decisions[index]

    def _own(
        self, columns: UpdateColumns, bins: list[list[int]], method: Method, version: int, prox: Proximal
    ) -> StepTokens:
        """Put this process's gradient of one optimiser step into the parameters."""
        decision_of = self._decider(columns, bins, method, version, prox)
        batches, keeps, weights = [], [], []
        loss, entropy = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for index, sequences in enumerate(bins):
            batch, entropy_pi = self._tokens(columns, sequences, version, prox)
            result = policy_loss(method, batch, decision_of(index, batch))
            # Denominators are global already, so processes add up; sharding averages over them.
            (result.loss * self.world.size).backward()  # type: ignore[no-untyped-call]
            loss += result.loss.detach()
            entropy += entropy_pi.sum()
            batches.append(batch.detach())
            keeps.append(result.keep)
            weights.append(result.weight)
        order = [index for sequences in bins for index in sequences]
        return StepTokens(
            order, concatenate(batches), torch.cat(keeps), torch.cat(weights), torch.stack([loss, entropy])
        )

    def _gather(self, columns: UpdateColumns, plan: list[list[list[int]]], mine: StepTokens) -> StepTokens:
        """Return the step of all processes together, on each of them."""
        if self.world.size == 1:
            return mine
        orders = [[index for sequences in bins for index in sequences] for bins in plan]
        lengths = [sum(int(columns.rollouts[i].trainable.sum()) for i in order) for order in orders]
        own = torch.stack([mine.tokens.logp_pi.float(), mine.keep.float(), mine.weight.float()])
        logp_pi, keep, weight = torch.cat(self.world.gather(own, lengths), dim=1)
        order = [index for part in orders for index in part]
        tokens = columns.batch(order, logp_pi, int(mine.tokens.target_version))
        return StepTokens(order, tokens, keep.bool(), weight, self.world.reduce(mine.sums))
