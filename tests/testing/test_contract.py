"""The contract rejects rules that are broken in the ways in which rules break, and says which clause."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pytest
import torch
from torch import Tensor

from entr_lab.rules import BoundedRule, Fixed, KeepRule, Reduce, Scope, finite, local
from entr_lab.testing import check_keep_rule
from entr_lab.tokens import Column, TokenBatch, promote


@dataclass(frozen=True, kw_only=True)
class Healthy(KeepRule):
    """|δ| ≤ c; each broken rule below changes one thing about it."""

    threshold: float = 0.5
    name: ClassVar[str] = "healthy"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "a test"
    inequality: ClassVar[str] = "|δ| ≤ c"

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return log_ratio.abs() <= self.threshold

    def _scaled(self, factor: float) -> Self:
        return type(self)(threshold=self.threshold * factor)


class Coupled(Healthy):
    """Centres δ over the batch, yet says that tokens decide alone."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        zero = torch.zeros_like(log_ratio)
        mean = torch.where(finite(log_ratio), log_ratio, zero).sum(-1, keepdim=True) / batch.n_tokens
        return ((log_ratio - mean).abs() <= self.threshold) | (log_ratio == 0)


class CoupledGently(Healthy):
    """Loosens its threshold where the batch is calm: δ = 0 and shrinking are respected, splits are not."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        share = (log_ratio.abs() < 0.1).float().mean(-1, keepdim=True)
        return log_ratio.abs() <= self.threshold * (1.0 + share)


class KeepsNaN(Healthy):
    """Drops what exceeds the bound; NaN exceeds nothing."""

    def keep(self, batch: TokenBatch, reduce: Reduce = local) -> Tensor:
        return ~(batch.detach().log_ratio.abs() > self.threshold)


class Positional(Healthy):
    """Never drops the first token."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        keep = log_ratio.abs() <= self.threshold
        keep[..., 0] = True
        return keep & finite(log_ratio)


class Soft(Healthy):
    """A weight that carries gradient, not a decision."""

    def keep(self, batch: TokenBatch, reduce: Reduce = local) -> Tensor:
        return torch.sigmoid(self.threshold - batch.log_ratio.abs())


class InPlace(Healthy):
    """Clamps a column that is not its own: `promote` returns float32 as it is."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        promote(batch.entropy_mu).clamp_(min=0.01)
        return log_ratio.abs() <= self.threshold


class LocalQuantile(Healthy):
    """A batch statistic of whatever part it is shown: it never calls `reduce`."""

    scope: ClassVar[Scope] = Scope.BATCH

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        size = torch.where(finite(log_ratio), log_ratio.abs(), torch.zeros_like(log_ratio))
        return (size <= size.mean(-1, keepdim=True) * (1.0 + self.threshold)) & finite(log_ratio)


class UnevenReduce(Healthy):
    """Asks the other processes only if it has something to tell."""

    scope: ClassVar[Scope] = Scope.BATCH

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        if batch.n_tokens > 48:
            reduce(torch.zeros(()))
        return log_ratio.abs() <= self.threshold


class MixesRuns(Healthy):
    """A mean over all axes, where the leading ones are independent runs."""

    scope: ClassVar[Scope] = Scope.BATCH

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        size = torch.where(finite(log_ratio), log_ratio.abs(), torch.zeros_like(log_ratio)).double()
        total, count = reduce(torch.stack((size.sum(), finite(log_ratio).double().sum())))
        return (size <= (total / count) * (1.0 + self.threshold)) & finite(log_ratio)


class DropsTheExactPolicy(Healthy):
    """A strict inequality with a bound of 0 at certain positions."""

    needs: ClassVar[frozenset[Column]] = frozenset({Column.ENTROPY_MU})

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return log_ratio.abs() < self.threshold * promote(batch.entropy_mu)


class Band(Healthy):
    """Keeps a ring around δ = 0: what comes closer leaves it."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        size = log_ratio.abs()
        return (size == 0) | ((size >= 0.2) & (size <= self.threshold))


class Undeclared(Healthy):
    """Reads the entropy without saying so."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return log_ratio.abs() <= self.threshold * (1.0 + promote(batch.entropy_mu))


class HalfPrecision(Healthy):
    """Subtracts in the dtype of the columns."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return ((batch.logp_pi - batch.logp_mu).abs() <= self.threshold) & finite(log_ratio)


class InFloat16(Healthy):
    """Rounds δ to half precision whatever it is given."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        digits = 2.0**-6 if log_ratio.dtype == torch.float32 else 2.0**-20
        return (log_ratio / digits).round().abs() * digits <= self.threshold


class Random(Healthy):
    """Another mask at every call."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        return torch.rand(log_ratio.shape) < 0.5


class Reversed(Healthy):
    """A dial that tightens where it should loosen."""

    def _scaled(self, factor: float) -> Self:
        return type(self)(threshold=self.threshold / factor)


class AnyFactor(Healthy):
    """A dial that takes 0 and −1."""

    def scaled(self, factor: float) -> Self:
        return type(self)(threshold=self.threshold * abs(factor))


class OneShort(Healthy):
    """A mask of another length."""

    def keep(self, batch: TokenBatch, reduce: Reduce = local) -> Tensor:
        return super().keep(batch, reduce)[..., :-1]


class Silent(Healthy):
    """Forgets to say where it comes from."""

    reference: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class Forgetful(Healthy):
    """Its repr does not build it again."""

    def __repr__(self) -> str:
        return "Forgetful()"


class WholeSequences(Healthy):
    """Drops a sequence if any of its tokens exceeds the bound; not broken."""

    scope: ClassVar[Scope] = Scope.SEQUENCE
    needs: ClassVar[frozenset[Column]] = frozenset({Column.SEQUENCE})

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        beyond = (log_ratio.abs() > self.threshold) & finite(log_ratio)
        size = int(batch.sequence.max()) + 1
        hits = torch.zeros(*batch.sequence.shape[:-1], size).scatter_add_(-1, batch.sequence, beyond.float())
        return (hits.gather(-1, batch.sequence) == 0) & finite(log_ratio)


class ActuallyBatch(WholeSequences):
    """Says sequence, reads the batch."""

    def _inside(self, batch: TokenBatch, log_ratio: Tensor, reduce: Reduce) -> Tensor:
        share = (log_ratio.abs() < 0.1).float().mean(-1, keepdim=True)
        return log_ratio.abs() <= self.threshold * (1.0 + share)


BROKEN = [
    (Coupled(), "micro-batches must decide as the undivided batch"),
    (CoupledGently(), "micro-batches must decide as the undivided batch"),
    (KeepsNaN(), "whose record or log-ratio is not finite must be dropped"),
    (Positional(), "permuting the tokens must permute the mask"),
    (Soft(), "keep must return a boolean tensor, got torch.float32"),
    (InPlace(), "keep modified its input entropy_mu in place"),
    (LocalQuantile(), "2 processes joined by reduce must decide as one"),
    (MixesRuns(), "leading axes must be independent runs"),
    (DropsTheExactPolicy(), "δ = 0 must keep every valid token"),
    (Band(), "a kept token was dropped when its"),
    (Undeclared(), "the mask changes with entropy_mu, which needs does not declare"),
    (HalfPrecision(), "columns must decide as the same values in float32"),
    (InFloat16(), "float32 and float64 must agree off the boundary"),
    (Random(), "keep must be deterministic"),
    (Reversed(), "scaled must be monotone"),
    (AnyFactor(), r"scaled\(0.0\) must raise RangeError"),
    (OneShort(), r"keep must return \[96\], one decision a token, got \[95\]"),
    (Silent(), "Silent.reference must be a non-empty string"),
    (Forgetful(threshold=0.7), r"eval\(repr\(rule\)\) must equal the rule"),
]


def test_the_healthy_rule_passes() -> None:
    check_keep_rule(Healthy())


@pytest.mark.parametrize(("rule", "clause"), BROKEN, ids=lambda value: type(value).__name__)
def test_a_broken_rule_is_rejected_by_the_clause_that_it_breaks(rule: Any, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_keep_rule(rule)


def test_a_process_that_stops_calling_reduce_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entr_lab.testing.processes._PATIENCE_S", 0.2)
    with pytest.raises(AssertionError, match="every process must call reduce equally often"):
        check_keep_rule(UnevenReduce(), n_tokens=97)


def test_a_rule_that_is_no_keep_rule_is_rejected() -> None:
    with pytest.raises(AssertionError, match="str must subclass KeepRule"):
        check_keep_rule("entr")  # type: ignore[arg-type]


def test_a_message_names_rule_seed_and_token() -> None:
    with pytest.raises(AssertionError) as caught:
        check_keep_rule(Band(), seeds=[5])
    message = str(caught.value)
    assert "tokens, the first at " in message
    assert "δ=" in message
    assert "(seed 5, rule Band(threshold=0.5))" in message


def test_every_clause_of_the_documentation_is_broken_by_some_rule_above() -> None:
    """A clause that no broken rule reaches could be deleted unnoticed."""
    clauses = [clause for _, clause in BROKEN]
    assert len(set(clauses)) == len(clauses) - 1  # the two coupled rules share one


def test_sequence_scope_is_checked_by_whole_sequences() -> None:
    check_keep_rule(WholeSequences(), seeds=range(2))
    with pytest.raises(AssertionError, match=r"as the undivided|as one|decides differently alone"):
        check_keep_rule(ActuallyBatch())


def test_other_hyper_parameters_pass_too() -> None:
    for threshold, side in itertools.product((1e-6, 40.0), ("symmetric", "outward")):
        check_keep_rule(Fixed(threshold=threshold, side=side), seeds=[1], n_tokens=32)  # type: ignore[arg-type]
    assert issubclass(Fixed, BoundedRule)
