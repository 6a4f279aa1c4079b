"""The contract that every keep rule passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from entr_lab.errors import ConfigError
from entr_lab.rules import KeepRule, Scope, keep_micro_batches
from entr_lab.testing.batches import (
    COLUMNS,
    FLOATS,
    adversarial_batch,
    column,
    one_per_run,
    repeat,
    split,
    take,
)
from entr_lab.testing.precision import check_precision
from entr_lab.testing.processes import keep_on_processes
from entr_lab.testing.verdict import agree, require
from entr_lab.tokens import Column, TokenBatch

__all__ = ["check_keep_rule"]

_OPTIONAL: Final = frozenset({Column.LOGP_PROX, Column.COLLISION_MU, Column.TURN})
_FREE: Final = frozenset({Column.LOGP_PI, Column.LOGP_MU, Column.ADVANTAGE})
"""Columns that any rule may read undeclared: δ and the direction of the update."""


def check_keep_rule(rule: KeepRule, *, seeds: Sequence[int] = range(4), n_tokens: int = 96) -> None:
    """Check the contract of a keep rule on seeded adversarial batches.

    Args:
        rule: the rule, with the hyper-parameters that it is used with.
        seeds: one batch of each kind per seed.
        n_tokens: N of each batch; large enough that several sequences occur.

    1. The declaration is complete and rebuilds the rule.
    2. The mask is a boolean `[..., N]` without gradient, deterministic, and its making leaves the inputs alone.
    3. Tokens without a finite record are dropped.
    4. δ = 0 keeps every valid token.
    5. A kept token that comes closer to δ = 0 is not dropped for it.
    6. The order of tokens does not matter, nor does any column that `needs` does not name.
    7. Any split of the update into micro-batches or processes decides alike; token scope: each token alone.
    8. Leading axes are independent runs.
    9. float64 agrees with float32 off the boundary, half precision with the same values in float32.
    10. `scaled` is a monotone dial, 1 leaves the rule as it is, and it refuses what is not positive.

    Raises:
        AssertionError: a clause is broken; the message names it, the rule, the seed and the first token.
    """
    _check_declaration(rule)
    for seed in seeds:
        batch = adversarial_batch(seed, n_tokens)
        for check in _CHECKS:
            try:
                check(rule, batch)
            except AssertionError as error:
                raise AssertionError(f"{error} (seed {seed}, rule {rule!r})") from None


def _check_declaration(rule: KeepRule) -> None:
    kind = type(rule)
    require(isinstance(rule, KeepRule), f"{kind.__name__} must subclass KeepRule, so that drivers can hold it.")
    frozen = is_dataclass(rule) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    require(frozen, f"{kind.__name__} must be a frozen dataclass: its fields are its whole configuration.")
    for name in ("name", "reference", "inequality"):
        value = getattr(kind, name, None)
        require(bool(value) and isinstance(value, str), f"{kind.__name__}.{name} must be a non-empty string.")
    require(isinstance(getattr(kind, "scope", None), Scope), f"{kind.__name__}.scope must be a Scope.")
    needs = getattr(kind, "needs", None)
    declared = isinstance(needs, frozenset) and needs <= set(COLUMNS)
    require(declared, f"{kind.__name__}.needs must be a frozenset of Column, got {needs!r}.")
    copy = kind(**asdict(rule))
    require(copy == rule and hash(copy) == hash(rule), f"{kind.__name__}(**asdict(rule)) must equal the rule.")
    try:
        rebuilt = eval(repr(rule), {kind.__name__: kind, "inf": math.inf})
    except Exception as error:
        rebuilt = error
    require(rebuilt == rule, f"eval(repr(rule)) must equal the rule, got {rebuilt!r} from {rule!r}.")


def _check_mask(rule: KeepRule, batch: TokenBatch) -> None:
    grown = replace(batch, logp_pi=batch.logp_pi.clone().requires_grad_())
    before = {name: column(grown, name).detach().clone() for name in COLUMNS}
    keep = rule.keep(grown)
    boolean = isinstance(keep, Tensor) and keep.dtype == torch.bool
    got = getattr(keep, "dtype", type(keep).__name__)
    require(boolean, f"keep must return a boolean tensor, got {got}; a soft weight belongs to the objective.")
    shape = list(batch.logp_pi.shape)
    require(list(keep.shape) == shape, f"keep must return {shape}, one decision a token, got {list(keep.shape)}.")
    for name, old in before.items():
        new = column(grown, name).detach()
        unmodified = bool(((old == new) | (old.isnan() & new.isnan())).all())
        require(unmodified, f"keep modified its input {name} in place; work on a copy.")
    require(torch.equal(keep, rule.keep(grown)), "keep must be deterministic: two calls on one batch differ.")


def _check_records(rule: KeepRule, batch: TokenBatch) -> None:
    recorded = batch.valid & batch.log_ratio.isfinite()
    agree("a token whose record or log-ratio is not finite must be dropped", rule.keep(batch) <= recorded, batch)
    for name in sorted(rule.needs & set(FLOATS) - {Column.ADVANTAGE}):  # a batch refuses such advantages itself
        spoiled = column(batch, name).clone()
        spoiled[::3] = math.nan
        kept = rule.keep(replace(batch, **{name: spoiled}))[::3]
        require(not kept.any(), f"a token whose {name} is NaN must be dropped, since the rule needs {name}.")


def _check_on_policy(rule: KeepRule, batch: TokenBatch) -> None:
    on_policy = replace(batch, logp_pi=batch.logp_mu.clone(), logp_prox=batch.logp_mu.clone())
    agree("δ = 0 must keep every valid token", rule.keep(on_policy) == on_policy.valid, on_policy)


def _check_shrinking(rule: KeepRule, batch: TokenBatch) -> None:
    keep = rule.keep(batch)
    recorded = batch.log_ratio.isfinite()
    for factor in (0.0, 0.5, 0.97):
        closer = torch.where(recorded, batch.logp_mu + factor * batch.log_ratio, batch.logp_pi)
        if rule.scope is Scope.TOKEN:  # tokens decide alone, so all of them may move at once
            moved = replace(batch, logp_pi=closer)
            still = rule.keep(moved)
        else:  # one run for each token, in which it alone moves
            runs = repeat(batch, batch.n_tokens)
            alone = torch.eye(batch.n_tokens, dtype=torch.bool)
            moved = replace(runs, logp_pi=torch.where(alone, closer, batch.logp_pi))
            still = rule.keep(moved).diagonal()
            moved = replace(batch, logp_pi=closer)
        agree(f"a kept token was dropped when its own |δ| shrank by {factor}", keep <= still, moved)


def _check_order(rule: KeepRule, batch: TokenBatch) -> None:
    keep = rule.keep(batch)
    shuffled = torch.randperm(batch.n_tokens, generator=torch.Generator().manual_seed(0))
    for order in (shuffled, shuffled.flip(0), *(torch.arange(batch.n_tokens).roll(shift) for shift in range(1, 9))):
        permuted = take(batch, order)
        agree("permuting the tokens must permute the mask", rule.keep(permuted) == keep[order], permuted)


def _check_needs(rule: KeepRule, batch: TokenBatch) -> None:
    keep = rule.keep(batch)
    bare = _without(batch, _OPTIONAL - rule.needs)
    agree("a column that is not in needs must not matter, even if it is missing", rule.keep(bare) == keep, batch)
    for needed in sorted(rule.needs & _OPTIONAL):
        try:
            rule.keep(_without(batch, {needed}))
        except ConfigError:
            continue
        raise AssertionError(f"a batch without {needed}, which the rule needs, must raise ConfigError.")
    other = adversarial_batch(917, batch.n_tokens, spoiled=False)
    undeclared = set(COLUMNS) - rule.needs - _FREE
    if rule.scope is not Scope.TOKEN:
        undeclared -= {"sequence", "group"}
    for name in sorted(undeclared):
        replaced = column(other, name)
        if replaced.is_floating_point():  # the same tokens stay recorded, only their values change
            replaced = torch.where(column(batch, name).isfinite(), replaced, column(batch, name))
        same = rule.keep(replace(batch, **{name: replaced})) == keep
        agree(f"the mask changes with {name}, which needs does not declare", same, batch)


def _check_splits(rule: KeepRule, batch: TokenBatch) -> None:
    keep = rule.keep(batch)
    by_sequence = rule.scope is Scope.SEQUENCE
    for n_parts in (1, 3, 17):
        masks = keep_micro_batches(rule, split(batch, n_parts, whole_sequences=by_sequence))
        agree(f"{n_parts} micro-batches must decide as the undivided batch", torch.cat(masks) == keep, batch)
    for n_parts in (2, 3):
        masks = keep_on_processes(rule, split(batch, n_parts, whole_sequences=by_sequence))
        agree(f"{n_parts} processes joined by reduce must decide as one", torch.cat(masks) == keep, batch)
    if rule.scope is Scope.TOKEN:
        alone = rule.keep(one_per_run(batch)).squeeze(-1)
        agree("scope is TOKEN, but a token decides differently alone; declare BATCH", alone == keep, batch)
    if by_sequence:
        parts = split(batch, batch.n_tokens, whole_sequences=True)
        alone = torch.cat([rule.keep(part) for part in parts])
        agree("scope is SEQUENCE, but a sequence decides differently alone", alone == keep, batch)


def _check_runs(rule: KeepRule, batch: TokenBatch) -> None:
    seed = int(batch.sequence.sum())  # another one for every batch
    runs = adversarial_batch(seed, batch.n_tokens, runs=(2, 3))
    keep = rule.keep(runs)
    shape = list(runs.logp_pi.shape)
    require(list(keep.shape) == shape, f"keep must return {shape} for leading axes, got {list(keep.shape)}.")
    for outer in range(2):
        for inner in range(3):
            alone = runs.runs(outer).runs(inner)
            agree("leading axes must be independent runs", keep[outer, inner] == rule.keep(alone), alone)


def _check_dial(rule: KeepRule, batch: TokenBatch) -> None:
    require(rule.scaled(1.0) == rule, f"scaled(1.0) must equal the rule, got {rule.scaled(1.0)!r}.")
    previous = torch.zeros_like(rule.keep(batch))
    for factor in (0.01, 0.3, 0.8, 1.0, 1.3, 4.0, 20.0):
        keep = rule.scaled(factor).keep(batch)
        agree(f"scaled must be monotone; {factor} drops what a smaller factor kept", previous <= keep, batch)
        previous = keep
    for factor in (0.0, -1.0, math.nan):
        try:
            scaled = rule.scaled(factor)
        except ConfigError:
            continue
        raise AssertionError(f"scaled({factor}) must raise RangeError, since a factor is positive; got {scaled!r}.")


_CHECKS: Final[tuple[Callable[[KeepRule, TokenBatch], None], ...]] = (
    _check_mask,
    _check_records,
    _check_on_policy,
    _check_shrinking,
    _check_order,
    _check_needs,
    _check_splits,
    _check_runs,
    check_precision,
    _check_dial,
)


def _without(batch: TokenBatch, names: Iterable[Column]) -> TokenBatch:
    missing: dict[str, Any] = {name.value: None for name in names}
    return replace(batch, **missing)
