"""Rules by name, our own and those of other packages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.objective import get_method, method_names
from entr_lab.rules import RULES, BoundedRule, Entr, KeepRule, Scope, make_rule, registry, rule_names
from entr_lab.testing import check_keep_rule
from entr_lab.tokens import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign(BoundedRule):
    """A rule as another package would write it."""

    threshold: float = 0.3
    name: ClassVar[str] = "foreign"
    scope: ClassVar[Scope] = Scope.TOKEN
    needs: ClassVar[frozenset[Column]] = frozenset()
    reference: ClassVar[str] = "a test"
    inequality: ClassVar[str] = "|δ| ≤ c"

    def bounds(self, batch: Any) -> tuple[float, float]:
        return -self.threshold, self.threshold

    def _scaled(self, factor: float) -> Foreign:
        return Foreign(threshold=self.threshold * factor)


class NotARule:
    """What an entry point must not name."""


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def install(**points: str) -> None:
        found = [EntryPoint(name, f"{__name__}:{value}", registry.ENTRY_POINT_GROUP) for name, value in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found if group == "entr_lab.rules" else [])
        registry._foreign.cache_clear()

    yield install
    registry._foreign.cache_clear()


def test_every_rule_stands_under_its_own_name() -> None:
    assert all(name == kind.name for name, kind in RULES.items())
    assert rule_names() == sorted(RULES)


def test_make_rule_takes_hyper_parameters() -> None:
    assert make_rule("entr", tau=1.6) == Entr(tau=1.6)
    assert make_rule("entr", side="outward").side == "outward"


@pytest.mark.parametrize(
    ("name", "hyper", "error", "message"),
    [
        ("entrr", {}, UnknownNameError, r"unknown rule 'entrr'; did you mean 'entr'\?"),
        ("", {}, UnknownNameError, "unknown rule ''"),
        ("entr", {"taus": 1.0}, UnknownNameError, r"hyper-parameter of rule 'entr' 'taus'; did you mean 'tau'\?"),
        ("entr", {"name": "x"}, UnknownNameError, r"hyper-parameter of rule 'entr' 'name'"),
        ("entr", {"tau": -1.0}, RangeError, "tau must lie in"),
        ("keep-all", {"threshold": 1.0}, UnknownNameError, r"hyper-parameter of rule 'keep-all' 'threshold'"),
    ],
)
def test_bad_names_and_values(name: str, hyper: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_rule(name, **hyper)


def test_a_rule_of_another_package_is_found_and_becomes_a_method(offer: Any) -> None:
    offer(foreign="Foreign")
    assert make_rule("foreign", threshold=0.5) == Foreign(threshold=0.5)
    assert "foreign" in rule_names()
    assert "foreign" in method_names()
    assert isinstance(get_method("foreign").rule, KeepRule)


def test_a_rule_of_another_package_passes_the_contract() -> None:
    check_keep_rule(Foreign(), seeds=[0])


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({"foreign": "NotARule"}, r"entry point 'foreign' \(.*NotARule\) is not a KeepRule; fix that package"),
        ({"other": "Foreign"}, r"must be named as its rule, 'foreign'"),
        ({"entr": "Foreign"}, r"must be named as its rule, 'foreign', and differ from the built-in names"),
    ],
)
def test_bad_entry_points_name_the_package_to_fix(offer: Any, points: dict[str, str], message: str) -> None:
    offer(**points)
    with pytest.raises(ConfigError, match=message):
        rule_names()
