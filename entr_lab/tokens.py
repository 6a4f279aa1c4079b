"""The one record that everything else reads: packed token columns of one batch of rollouts.

Shapes are `[..., N]`: the last axis holds the trainable tokens of all sequences one after another, without
padding; leading axes, if any, are independent runs that never mix. Prompt and tool tokens are context, not rows.
Log-probabilities and entropies are natural (nats) and belong to the distribution that was *sampled from*:
after temperature, top-p and top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from typing import Final

import torch
from torch import Tensor

from entr_lab.errors import DataError, ShapeError

__all__ = ["Column", "TokenBatch", "concatenate", "from_padded", "promote", "to_padded"]

_PROBABILITY_SLACK: Final = 1e-3
"""nats by which a rounded log-probability may exceed 0, or a rounded entropy fall below it."""


class Column(StrEnum):
    """Columns of a `TokenBatch`, as a rule names the ones that it needs."""

    LOGP_PI = "logp_pi"
    LOGP_MU = "logp_mu"
    ENTROPY_MU = "entropy_mu"
    ADVANTAGE = "advantage"
    SEQUENCE = "sequence"
    GROUP = "group"
    WEIGHT_VERSION = "weight_version"
    LOGP_PROX = "logp_prox"
    COLLISION_MU = "collision_mu"
    TURN = "turn"


_FLOATS: Final = ("logp_pi", "logp_mu", "entropy_mu", "advantage", "logp_prox", "collision_mu")
_INTEGERS: Final = ("sequence", "group", "weight_version", "turn")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenBatch:
    """Trainable tokens of one batch, packed.

    Args:
        logp_pi: `[..., N]` log π_θ(y) of the trainer's current weights; the only column that may carry gradient.
        logp_mu: `[..., N]` log μ(y) as the engine recorded it, under the weights that produced *that* token.
        entropy_mu: `[..., N]` H = −Σ μ log μ at that position, full vocabulary, nats.
        advantage: `[..., N]` detached advantage.
        sequence: `[..., N]` int64; equal ids belong to one trajectory. Ids are local to a run and must differ between
            the micro-batches of one update, or their trajectories are taken for one.
        group: `[..., N]` int64; trajectories of one prompt.
        weight_version: `[..., N]` int64 version that sampled the token.
        target_version: version that the update starts from; an int, or int64 broadcastable to `[...]`.
        logp_prox: `[..., N]` log-prob of the proximal policy, where a method anchors on it.
        collision_mu: `[..., N]` Σ μ², for rules that scale by the Gini–Simpson index.
        turn: `[..., N]` int64 turn of a multi-turn trajectory.

    A token whose `logp_mu` or `entropy_mu` is not finite has no usable behaviour record. It stays a row, so that
    it still counts in denominators, but `valid` is False there and every rule drops it (decision 4 of design.md).

    Raises:
        ShapeError: a column is no tensor, columns disagree in shape, dtype kind or device, N = 0, or target_version
            is no integer or does not fit the runs.
        DataError: a finite log μ is above 0 or a finite entropy below 0 by more than 1e-3 nats, an advantage is not
            finite, or a token is newer than the target version.
    """

    logp_pi: Tensor
    logp_mu: Tensor
    entropy_mu: Tensor
    advantage: Tensor
    sequence: Tensor
    group: Tensor
    weight_version: Tensor
    target_version: int | Tensor
    logp_prox: Tensor | None = None
    collision_mu: Tensor | None = None
    turn: Tensor | None = None

    def __post_init__(self) -> None:
        for name in _FLOATS + _INTEGERS:
            self._check_kind(name)
        shape = self.logp_pi.shape
        if len(shape) == 0 or shape[-1] == 0:
            raise ShapeError(f"logp_pi must have shape [..., N] with N >= 1, got {list(shape)}; drop empty batches.")
        for name in _FLOATS + _INTEGERS:
            self._check_column(name, shape)
        self._check_target(shape[:-1])
        self._check_values()

    def _check_kind(self, name: str) -> None:
        column: object = getattr(self, name)
        optional = type(self).__dataclass_fields__[name].default is None
        if not isinstance(column, Tensor) and not (optional and column is None):
            expected = "a torch.Tensor or None" if optional else "a torch.Tensor"
            raise ShapeError(
                f"{name} must be {expected}, got {type(column).__name__}; convert it with torch.as_tensor."
            )

    def _check_column(self, name: str, shape: torch.Size) -> None:
        column: Tensor | None = getattr(self, name)
        if column is None:
            return
        if column.shape != shape:
            raise ShapeError(
                f"{name} must have the shape of logp_pi {list(shape)}, got {list(column.shape)}; "
                f"pack all columns by the same mask."
            )
        wants_float = name in _FLOATS
        if column.is_floating_point() is not wants_float or (not wants_float and column.dtype != torch.int64):
            expected = "a floating dtype" if wants_float else "int64"
            raise ShapeError(f"{name} must have {expected}, got {column.dtype}; convert it before packing.")
        if column.device != self.logp_pi.device:
            raise ShapeError(f"{name} lies on {column.device}, logp_pi on {self.logp_pi.device}; move one of them.")
        if column.requires_grad and name != "logp_pi":
            raise ShapeError(f"{name} carries gradient; only logp_pi may. Detach it.")

    def _check_target(self, runs: torch.Size) -> None:
        given: object = self.target_version
        if isinstance(given, Tensor):
            kind, whole = str(given.dtype), not (given.is_floating_point() or given.dtype == torch.bool)
        else:
            kind, whole = type(given).__name__, isinstance(given, Integral)
        if not whole:
            raise ShapeError(
                f"target_version must be an int or an int64 tensor, got {kind}; pass the version's number."
            )
        target = self.target_versions
        shape = target.shape[:-1] if target.ndim else target.shape
        aligned = zip(reversed(shape), reversed(runs), strict=False)
        if len(shape) > len(runs) or any(have not in (1, want) for have, want in aligned):
            raise ShapeError(
                f"target_version must be an int or broadcast to the runs {list(runs)}, got {list(shape)}; "
                f"pass one version per run."
            )

    def _check_values(self) -> None:
        if not (finite := self.advantage.isfinite()).all():
            raise DataError(
                f"advantage must be finite, got {int((~finite).sum())} NaN or infinite values; "
                f"look for a reward that is not a number."
            )
        for name, sign, bound in (("logp_mu", 1.0, "<= 0"), ("entropy_mu", -1.0, ">= 0")):
            values: Tensor = getattr(self, name) * sign
            beyond = (values > _PROBABILITY_SLACK) & values.isfinite()
            if beyond.any():
                worst = float(values[beyond].max()) * sign
                raise DataError(
                    f"{name} must be {bound} nats, got {worst:g} among {int(beyond.sum())} tokens; "
                    f"pass natural log-probabilities and entropies, not probabilities."
                )
        target = self.target_versions
        if (self.weight_version > target).any():
            raise DataError(
                f"weight_version must not exceed target_version, got {int(self.weight_version.max())} "
                f"> {int(target.max())}; the target is the version that the update starts from."
            )

    @property
    def n_tokens(self) -> int:
        """N, trainable tokens per run, usable or not."""
        return self.logp_pi.shape[-1]

    @property
    def target_versions(self) -> Tensor:
        """Target version as an int64 tensor that broadcasts against `[..., N]`."""
        target = torch.as_tensor(self.target_version, dtype=torch.int64, device=self.logp_pi.device)
        return target if target.ndim == 0 else target.unsqueeze(-1)

    @property
    def valid(self) -> Tensor:
        """`[..., N]` bool: the behaviour record (log μ and H) is finite."""
        return self.logp_mu.isfinite() & self.entropy_mu.isfinite()

    @property
    def n_unrecorded(self) -> Tensor:
        """`[...]` int64: tokens without a usable behaviour record; report it with every loss."""
        return (~self.valid).sum(-1)

    @property
    def log_ratio(self) -> Tensor:
        """`[..., N]` δ = log π_θ − log μ, in float32 or better, with the gradient of `logp_pi`."""
        return promote(self.logp_pi) - promote(self.logp_mu)

    @property
    def staleness(self) -> Tensor:
        """`[..., N]` int64 target version − weight version, per token."""
        return self.target_versions - self.weight_version

    def detach(self) -> TokenBatch:
        """Return the same batch with `logp_pi` detached, as rules and diagnostics read it."""
        if not self.logp_pi.requires_grad:
            return self
        detached = self._view(lambda column: column, self.target_version)
        object.__setattr__(detached, "logp_pi", self.logp_pi.detach())
        return detached

    def runs(self, index: int | slice) -> TokenBatch:
        """Select runs along the first leading axis."""
        if self.logp_pi.ndim < 2:
            raise ShapeError("a batch without leading axes has no runs to select; its shape is [N].")
        target = self.target_version
        picked = target[index] if isinstance(target, Tensor) and target.ndim else target
        return self._view(lambda column: column[index], picked)

    def block(self, start: int, length: int) -> TokenBatch:
        """Select `length` neighbouring tokens of every run, as views."""
        return self._view(lambda column: column.narrow(-1, start, length), self.target_version)

    def blocks(self, length: int) -> Iterator[TokenBatch]:
        """Yield the batch in neighbouring blocks of at most `length` tokens of every run, as views."""
        columns = {name: getattr(self, name) for name in _FLOATS + _INTEGERS}
        pieces = {name: torch.split(column, length, dim=-1) for name, column in columns.items() if column is not None}
        for index in range(-(-self.n_tokens // length)):
            views = {name: pieces[name][index] if name in pieces else None for name in columns}
            yield _unchecked(self.target_version, views)

    def _view(self, pick: Callable[[Tensor], Tensor], target: int | Tensor) -> TokenBatch:
        """Apply `pick` to every column; what comes out of a valid batch is not validated again."""
        columns: dict[str, Tensor | None] = {name: getattr(self, name) for name in _FLOATS + _INTEGERS}
        return _unchecked(target, {name: None if c is None else pick(c) for name, c in columns.items()})

    def missing(self, needs: frozenset[Column]) -> list[str]:
        """Return the needed columns that this batch lacks, sorted."""
        return sorted(name for name in needs if getattr(self, name) is None)


def _unchecked(target: int | Tensor, columns: dict[str, Tensor | None]) -> TokenBatch:
    batch = object.__new__(TokenBatch)
    object.__setattr__(batch, "target_version", target)
    for name, column in columns.items():
        object.__setattr__(batch, name, column)
    return batch


def promote(column: Tensor) -> Tensor:
    """Return `column` in float32, or in its own dtype where that is wider; bf16 logs lose 1 % at |log p| = 2."""
    return column.to(torch.promote_types(column.dtype, torch.float32))


def concatenate(batches: Sequence[TokenBatch]) -> TokenBatch:
    """Put batches of one update side by side along the token axis.

    Raises:
        ShapeError: there is no batch, or they differ in leading axes or in which columns they carry.
        DataError: they start from different target versions.
    """
    if not batches:
        raise ShapeError("batches must hold at least one TokenBatch, got none; an update without tokens is no update.")
    first = batches[0]
    for batch in batches:
        if batch.logp_pi.shape[:-1] != first.logp_pi.shape[:-1]:
            raise ShapeError(
                f"batches must share their leading axes {list(first.logp_pi.shape[:-1])}, got "
                f"{list(batch.logp_pi.shape[:-1])}; concatenate micro-batches of the same runs."
            )
        if not torch.equal(batch.target_versions, first.target_versions):
            raise DataError("micro-batches of one update must share target_version; take them from one update.")
    columns: dict[str, Tensor | None] = {}
    for name in _FLOATS + _INTEGERS:
        parts = [getattr(batch, name) for batch in batches]
        present = [part for part in parts if part is not None]
        if len(present) not in (0, len(parts)):
            raise ShapeError(f"{name} is present in {len(present)} of {len(parts)} micro-batches; record it in all.")
        columns[name] = torch.cat(present, dim=-1) if present else None
    return TokenBatch(target_version=first.target_version, **columns)  # type: ignore[arg-type]


def from_padded(mask: Tensor, *, target_version: int, first_sequence: int = 0, **columns: Tensor | None) -> TokenBatch:
    """Pack padded `[B, T]` columns.

    Args:
        mask: `[B, T]` bool, True on trainable tokens.
        target_version: version that the update starts from.
        first_sequence: id of the first row; the rows of earlier micro-batches come before.
        columns: the columns of `TokenBatch`, `[B, T]` each, or `[B]` for values constant along a sequence.
            `sequence` may be left out: it is then the row number, from `first_sequence` on.

    Raises:
        ShapeError: the mask is not boolean `[B, T]`, selects nothing, or a column has neither shape.
    """
    if mask.dtype != torch.bool or mask.ndim != 2:
        raise ShapeError(f"mask must be bool [B, T], got {mask.dtype} {list(mask.shape)}.")
    if not mask.any():
        raise ShapeError("mask selects no token; a batch without trainable tokens has no loss, so skip it.")
    rows = torch.arange(mask.shape[0], device=mask.device) + first_sequence
    packed: dict[str, Tensor | None] = {}
    for name, column in {"sequence": rows, **columns}.items():
        if column is None:
            continue
        if column.shape == mask.shape[:1]:
            column = column.unsqueeze(1).expand(mask.shape)
        if column.shape != mask.shape:
            raise ShapeError(f"{name} must be [B, T] = {list(mask.shape)} or [B], got {list(column.shape)}.")
        packed[name] = column[mask]
    return TokenBatch(target_version=target_version, **packed)  # type: ignore[arg-type]


def to_padded(values: Tensor, mask: Tensor, fill: float | bool = 0) -> Tensor:
    """Undo `from_padded` for one packed column: `[N]` values back to `[B, T]`, `fill` elsewhere.

    Raises:
        ShapeError: the number of values is not the number of True entries of the mask.
    """
    n_masked = int(mask.sum())
    if values.shape != (n_masked,):
        raise ShapeError(f"values must be [{n_masked}], one for each True of the mask, got {list(values.shape)}.")
    padded = torch.full(mask.shape, fill, dtype=values.dtype, device=values.device)
    return padded.masked_scatter(mask, values)
