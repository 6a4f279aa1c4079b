"""What the base class does for every rule: refusal of missing columns, trusted tokens, blocks, sides, the dial."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import ClassVar

import pytest
import torch

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.rules import (
    BoundedRule,
    Entr,
    EntrGini,
    Fixed,
    IcePop,
    KeepAll,
    KeepRule,
    Scope,
    Side,
    base,
    finite,
    local,
)
from entr_lab.testing import adversarial_batch, check_keep_rule
from entr_lab.tokens import Column, TokenBatch, promote
from tests.rules.cases import DEFAULTS, OUTWARD
from tests.strategies import build, from_ratios, with_gradient


def test_a_missing_column_is_named_before_any_work() -> None:
    batch = from_ratios([0.0, 0.1])
    with pytest.raises(ConfigError, match=r"rule 'entr-gini' needs collision_mu, which this batch lacks"):
        EntrGini().keep(batch)


@pytest.mark.parametrize("rule", [r for r in DEFAULTS + OUTWARD if r.scope is Scope.TOKEN], ids=repr)
@pytest.mark.parametrize("runs", [(), (2,)], ids=["one run", "two runs"])
def test_blocks_do_not_change_the_mask(rule: KeepRule, runs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = adversarial_batch(1, 101, runs=runs)
    whole = rule.keep(batch)
    monkeypatch.setattr(base, "_BLOCK", 7)
    assert torch.equal(rule.keep(batch), whole)


def test_a_batch_longer_than_one_block_is_decided_token_by_token() -> None:
    n_tokens = base._BLOCK + 3
    delta = torch.linspace(-2.0, 2.0, n_tokens, dtype=torch.float64)
    batch = build({"logp_mu": torch.full((n_tokens,), -3.0), "logp_pi": delta - 3.0}, dtype=torch.float64)
    assert torch.equal(Fixed(threshold=1.2).keep(batch), (batch.log_ratio.abs() <= 1.2))


@pytest.mark.parametrize("column", ["logp_mu", "entropy_mu", "logp_pi"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_keep_all_still_drops_what_has_no_record(column: str, value: float) -> None:
    columns = {"logp_mu": [-1.0, -1.0], "logp_pi": [-1.0, -1.0], "entropy_mu": [0.5, 0.5]}
    columns[column][0] = value
    assert KeepAll().keep(build(columns)).tolist() == [False, True]


def test_infinities_that_would_cancel_are_still_dropped() -> None:
    batch = build({"logp_mu": [-1.0, -math.inf], "logp_pi": [-math.inf, -math.inf], "entropy_mu": [math.inf, 0.5]})
    assert KeepAll().keep(batch).tolist() == [False, False]


@pytest.mark.parametrize("side", list(Side))
def test_a_column_that_a_rule_scales_by_must_be_finite(side: Side) -> None:
    batch = from_ratios([0.0, 0.0, 0.0], collision_mu=[0.5, math.nan, math.inf])
    assert EntrGini(side=side).keep(batch).tolist() == [True, False, False]


@pytest.mark.parametrize("kind", [Fixed, Entr, IcePop])
def test_outward_drops_only_what_its_own_gradient_pushes_further_out(kind: type[BoundedRule]) -> None:
    #                     outward,   inward,    A = 0,     outward,   inside
    batch = from_ratios([3.0, 3.0, 3.0, -3.0, 0.0], advantage=[1.0, -1.0, 0.0, -1.0, 1.0])
    assert kind(side=Side.OUTWARD).keep(batch).tolist() == [False, True, True, False, True]
    assert kind().keep(batch).tolist() == [False, False, False, False, True]


def test_outward_keeps_every_token_that_symmetric_keeps() -> None:
    batch = adversarial_batch(2, 500)
    for rule in OUTWARD:
        symmetric = replace(rule, side=Side.SYMMETRIC)
        assert (symmetric.keep(batch) <= rule.keep(batch)).all()
        dropped = symmetric.keep(batch) ^ rule.keep(batch)
        assert (batch.advantage * batch.log_ratio)[dropped].le(0.0).all()


def test_side_is_read_from_text_and_misspellings_are_answered() -> None:
    assert Fixed(side="outward").side is Side.OUTWARD  # type: ignore[arg-type]
    assert repr(Fixed(side=Side.OUTWARD)) == "Fixed(side='outward', threshold=1.2)"
    with pytest.raises(UnknownNameError, match=r"unknown side 'outwards'; did you mean 'outward'\?"):
        Fixed(side="outwards")  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", DEFAULTS, ids=repr)
@pytest.mark.parametrize("factor", [0.0, -1.0, -0.5, math.nan, math.inf])
def test_a_factor_that_is_not_positive_and_finite_is_refused_by_name(rule: KeepRule, factor: float) -> None:
    with pytest.raises(RangeError, match=r"factor must lie in \(0, inf\)"):
        rule.scaled(factor)


@dataclass(frozen=True, kw_only=True)
class OneSided(BoundedRule):
    """Bounds of two kinds: a number that is infinite, and a tensor."""

    name: ClassVar[str] = "one-sided"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset({Column.ENTROPY_MU})
    reference: ClassVar[str] = "a test"
    inequality: ClassVar[str] = "δ ≤ 1 + H"
    scale: float = 1.0

    def bounds(self, batch: TokenBatch) -> tuple[float, torch.Tensor]:
        return -math.inf, self.scale * (1.0 + promote(batch.entropy_mu))

    def _scaled(self, factor: float) -> OneSided:
        return replace(self, scale=self.scale * factor)


@pytest.mark.parametrize("side", list(Side))
def test_bounds_may_be_numbers_tensors_or_one_of_each(side: Side) -> None:
    check_keep_rule(OneSided(side=side), seeds=range(2))


def test_finite() -> None:
    values = torch.tensor([0.0, -1e38, math.inf, -math.inf, math.nan])
    assert finite(values).tolist() == [True, True, False, False, False]


def test_rules_are_values() -> None:
    assert Fixed() == Fixed(threshold=1.2)
    assert len({Fixed(), Fixed(threshold=1.2), Fixed(threshold=1.3)}) == 2
    with pytest.raises(FrozenInstanceError):
        Fixed().threshold = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="abstract"):
        KeepRule()  # type: ignore[abstract]


def test_the_mask_has_no_gradient_and_leaves_none_behind() -> None:
    batch = with_gradient(from_ratios([0.0, 2.0]))
    keep = Fixed().keep(batch)
    assert keep.dtype == torch.bool
    assert not keep.requires_grad
    assert batch.logp_pi.grad is None


def test_local_reduce_is_the_identity() -> None:
    total = torch.tensor([1.0, 2.0])
    assert local(total) is total
