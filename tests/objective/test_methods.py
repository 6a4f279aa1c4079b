"""Named combinations: their papers' defaults, what a user types, and every answer to a typing error."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import pytest

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.objective import (
    METHODS,
    Advantage,
    Anchor,
    Denominator,
    Method,
    PlainRatio,
    PpoClip,
    Reduction,
    UncappedOutwardWarning,
    Weight,
    WeightKind,
    get_method,
    method_names,
    parse_method,
)
from entr_lab.rules import Entr, Fixed, IcePop, KeepAll, Kpop, M2po, Side, make_rule


def test_defaults_of_the_papers() -> None:
    assert get_method("entr").rule == Entr(tau=1.0, eps=0.01)
    assert get_method("icepop").rule == IcePop(low=0.5, high=5.0)
    assert get_method("kpop").rule == Kpop(phi=0.1)
    assert get_method("m2po").rule == M2po(budget=0.04)
    assert get_method("async-grpo").rule == KeepAll()
    assert get_method("tis").weight == Weight(kind=WeightKind.TRUNCATED, cap=2.0)


def test_in_a_comparison_the_rule_is_the_only_difference() -> None:
    for name in METHODS:
        method = get_method(name)
        assert method.anchor is (Anchor.CURRENT if name == "sync-grpo" else Anchor.BEHAVIOUR)
        assert method.surrogate == PlainRatio()
        assert method.reduction == Reduction(denominator=Denominator.TOKEN_MEAN)
        assert method.advantage is Advantage.GRPO
        assert method.synchronous is (name == "sync-grpo")
        assert method.name == name
        assert METHODS[name][1]


def test_entr_outward_is_entr_with_two_changes() -> None:
    method = get_method("entr-outward")
    assert method.rule == Entr(side=Side.OUTWARD)
    assert method.weight.kind is WeightKind.BOUNDARY
    assert replace(method.rule, side=Side.SYMMETRIC) == get_method("entr").rule


def test_names_come_in_order_of_presentation_and_once() -> None:
    assert method_names()[: len(METHODS)] == list(METHODS)
    assert len(set(method_names())) == len(method_names())


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("entr", Entr()),
        (" entr ", Entr()),
        ("entr()", Entr()),
        ("entr(tau=1.6)", Entr(tau=1.6)),
        ("entr( tau = 1.6 , eps = 0.1 )", Entr(tau=1.6, eps=0.1)),
        ("entr(tau=1e-3,)", Entr(tau=1e-3)),
        ("icepop(high=inf)", IcePop(high=math.inf)),
        ("keep-all", KeepAll()),
    ],
)
def test_what_a_user_types(text: str, rule: object) -> None:
    assert parse_method(text).rule == rule


@pytest.mark.parametrize("text", ["entr(tau=1.6,eps=0.1)", "tis(cap=5)", "icepop(low=0.25)", "m2po"])
def test_the_label_builds_the_method_again(text: str) -> None:
    method = parse_method(text)
    assert method.name.startswith(text.split("(")[0])
    assert parse_method(method.name) == method


def test_the_cap_of_tis_is_its_hyper_parameter() -> None:
    assert parse_method("tis(cap=5)").weight == Weight(kind=WeightKind.TRUNCATED, cap=5.0)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("entrr", UnknownNameError, r"unknown method 'entrr'; did you mean 'entr'\? Known: async-grpo, "),
        ("ENTR", UnknownNameError, r"unknown method 'ENTR'; did you mean 'entr'\?"),
        ("ice-pop", UnknownNameError, r"unknown method 'ice-pop'; did you mean 'icepop'\?"),
        ("zzzz", UnknownNameError, r"unknown method 'zzzz'; none is like it. Known: "),
        ("entr(taux=1)", UnknownNameError, r"hyper-parameter of rule 'entr' 'taux'; did you mean 'tau'\?"),
        ("entr(name=x)", UnknownNameError, r"hyper-parameter of rule 'entr' 'name'"),
        ("tis(tau=1)", UnknownNameError, r"hyper-parameter of method 'tis' 'tau'; .*Known: cap"),
        ("entr-outward(side=symmetric)", UnknownNameError, r"method 'entr-outward' 'side'; .*Known: eps, tau"),
        ("fixed(side=inward)", UnknownNameError, r"unknown side 'inward'; did you mean 'outward'\?"),
        ("entr(tau=-1)", RangeError, r"tau must lie in \(0, 1e\+18\], got -1.0; choose a value inside"),
        ("entr(tau=nan)", RangeError, r"tau must lie in \(0, 1e\+18\], got nan"),
        ("entr(tau=abc)", RangeError, r"tau must lie in \(0, 1e\+18\], got 'abc'"),
        ("entr(tau=)", RangeError, r"tau must lie in \(0, 1e\+18\], got ''"),
        ("tis(cap=x)", RangeError, r"cap must lie in \(0, inf\], got 'x'"),
        ("entr(1.6)", ConfigError, r"cannot read '1.6' in method 'entr\(1.6\)'; write key=value"),
        ("entr(tau=1,6)", ConfigError, r"cannot read '6' in method"),
        ("entr(tau=1,tau=2)", ConfigError, r"'tau' stands twice in method"),
        ("entr(tau=1", ConfigError, r"cannot read method 'entr\(tau=1'; write a name, or name\(key=value, ...\)"),
        ("", ConfigError, "cannot read method ''"),
        ("entr tau=1", ConfigError, "cannot read method 'entr tau=1'"),
    ],
)
def test_answers_to_typing_errors(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_method(text)


@pytest.mark.parametrize(
    "name", ["entr", "fixed", "icepop", "entr-explore", "entr-outlier", "entr-gini", "entr-envelope"]
)
def test_outward_with_an_uncapped_weight_warns(name: str) -> None:
    with pytest.warns(UncappedOutwardWarning, match="one wrong recorded probability can dominate the update"):
        parse_method(f"{name}(side=outward)")


def test_outward_with_a_capped_weight_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_method("entr-outward", tau=1.6)
        Method(name="x", rule=Fixed(side=Side.OUTWARD), weight=Weight(kind=WeightKind.TRUNCATED, cap=2.0))
        Method(name="x", rule=Fixed(side=Side.OUTWARD), weight=Weight(kind=WeightKind.BOUNDARY))
        get_method("keep-all", side="outward")  # nothing lies beyond its boundary


def test_a_cap_of_infinity_is_no_cap() -> None:
    with pytest.warns(UncappedOutwardWarning):
        Method(name="x", rule=Fixed(side=Side.OUTWARD), weight=Weight(kind=WeightKind.TRUNCATED))


def test_a_boundary_weight_needs_a_rule_with_a_boundary() -> None:
    with pytest.raises(ConfigError, match=r"truncates at the boundary of rule 'm2po', which has none in δ"):
        Method(name="x", rule=M2po(), weight=Weight(kind=WeightKind.BOUNDARY))


def test_a_shared_setting_changes_nothing_else() -> None:
    method = get_method("entr-outward")
    setting = {"surrogate": PpoClip(), "reduction": Reduction(denominator=Denominator.SEQ_MEAN_TOKEN_MEAN)}
    changed = method.with_setting(**setting, advantage=Advantage.DR_GRPO)  # type: ignore[arg-type]
    assert (changed.rule, changed.weight, changed.anchor) == (method.rule, method.weight, method.anchor)
    assert changed.surrogate == PpoClip()
    assert changed.advantage is Advantage.DR_GRPO
    assert method.with_setting() == method


def test_kinds_may_be_given_by_name_and_mean_the_same() -> None:
    """A string that is no enum member once fell through to the last branch and chose another objective."""
    rule = make_rule("entr")

    assert Method(name="m", rule=rule, anchor="behaviour", weight=Weight(kind="boundary")) == Method(
        name="m", rule=rule, anchor=Anchor.BEHAVIOUR, weight=Weight(kind=WeightKind.BOUNDARY)
    )
    assert Weight(kind="boundary").is_capped
    for bad in ({"anchor": "prox"}, {"advantage": "grp"}):
        with pytest.raises(UnknownNameError):
            Method(name="m", rule=rule, **bad)
    with pytest.raises(UnknownNameError, match="'truncated'"):
        Weight(kind="trunc", cap=2.0)
