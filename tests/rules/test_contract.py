"""The battery that every rule of `RULES` passes: the public contract, and agreement with its naive twin."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest
import torch
from hypothesis import given, settings

from entr_lab.rules import RULES, KeepRule, make_rule
from entr_lab.testing import adversarial_batch, check_keep_rule
from entr_lab.tokens import TokenBatch
from tests import reference
from tests.rules.cases import DEFAULTS, OUTWARD, SCALED
from tests.strategies import DTYPES, batches

every_rule = pytest.mark.parametrize("rule", DEFAULTS + OUTWARD, ids=repr)


@pytest.mark.parametrize("rule", DEFAULTS, ids=repr)
def test_contract_of_the_defaults(rule: KeepRule) -> None:
    check_keep_rule(rule, seeds=range(2))


@pytest.mark.parametrize("rule", OUTWARD + SCALED, ids=repr)
def test_contract_of_the_variants(rule: KeepRule) -> None:
    check_keep_rule(rule, seeds=[11], n_tokens=64)


@every_rule
@settings(max_examples=15)
@given(batch=batches(max_tokens=8, dtypes=DTYPES))
def test_mask_equals_the_naive_twin_off_the_boundary(rule: KeepRule, batch: TokenBatch) -> None:
    rows, hyper = reference.rows(batch), asdict(rule)
    expected = torch.tensor(reference.keep(rule.name, rows, hyper))
    at_boundary = torch.tensor(reference.close_to_boundary(rule.name, rows, hyper, slack=1e-5))
    assert torch.equal(rule.keep(batch) | at_boundary, expected | at_boundary)


@pytest.mark.parametrize("rule", DEFAULTS + OUTWARD + SCALED, ids=repr)
def test_mask_equals_the_naive_twin_on_a_long_batch(rule: KeepRule) -> None:
    batch = adversarial_batch(5, 700)
    rows, hyper = reference.rows(batch), asdict(rule)
    expected = torch.tensor(reference.keep(rule.name, rows, hyper))
    at_boundary = torch.tensor(reference.close_to_boundary(rule.name, rows, hyper, slack=1e-5))
    assert at_boundary.float().mean() < 0.01
    assert torch.equal(rule.keep(batch) | at_boundary, expected | at_boundary)


@every_rule
def test_registry_rebuilds_the_rule(rule: KeepRule) -> None:
    assert make_rule(rule.name, **asdict(rule)) == rule
    assert type(rule) is RULES[rule.name]


@every_rule
def test_every_hyper_parameter_is_explained(rule: KeepRule) -> None:
    documentation = "".join(kind.__doc__ or "" for kind in type(rule).__mro__[:-1])
    for field in fields(rule):
        assert f"{field.name}:" in documentation, f"{field.name} of {type(rule).__name__} has no line in a docstring"


@every_rule
def test_some_tokens_are_kept_and_some_dropped(rule: KeepRule) -> None:
    batch = adversarial_batch(3, 400, spoiled=rule.name == "keep-all")
    kept = rule.keep(batch).float().mean()
    assert 0.2 < kept < 1.0  # so that the battery above has something to disagree about
