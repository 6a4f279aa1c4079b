"""The keep rules by name: one line each, and those of other packages through the entry point group."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from entr_lab.errors import ConfigError, check_choice
from entr_lab.rules.base import KeepRule
from entr_lab.rules.entr import Entr
from entr_lab.rules.entr_envelope import EntrEnvelope
from entr_lab.rules.entr_gini import EntrGini
from entr_lab.rules.entr_halves import EntrExplore, EntrOutlier
from entr_lab.rules.fixed import Fixed
from entr_lab.rules.icepop import IcePop
from entr_lab.rules.keep_all import KeepAll
from entr_lab.rules.kpop import Kpop
from entr_lab.rules.m2po import M2po

__all__ = ["ENTRY_POINT_GROUP", "RULES", "make_rule", "rule_names"]

ENTRY_POINT_GROUP: Final = "entr_lab.rules"

RULES: Final[dict[str, type[KeepRule]]] = {
    "keep-all": KeepAll,
    "fixed": Fixed,
    "entr-explore": EntrExplore,
    "entr-outlier": EntrOutlier,
    "icepop": IcePop,
    "kpop": Kpop,
    "m2po": M2po,
    "entr": Entr,
    "entr-gini": EntrGini,
    "entr-envelope": EntrEnvelope,
}


@cache
def _foreign() -> dict[str, type[KeepRule]]:
    """Return the rules that installed packages offer; a name of our own is never replaced."""
    found: dict[str, type[KeepRule]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        rule = point.load()
        if not (isinstance(rule, type) and issubclass(rule, KeepRule)):
            raise ConfigError(f"entry point {point.name!r} ({point.value}) is not a KeepRule; fix that package.")
        if point.name in RULES or rule.name != point.name:
            raise ConfigError(
                f"entry point {point.name!r} ({point.value}) must be named as its rule, {rule.name!r}, "
                f"and differ from the built-in names; rename it in that package."
            )
        found[point.name] = rule
    return found


def rule_names() -> list[str]:
    """Return every known rule name, sorted."""
    return sorted({**RULES, **_foreign()})


def make_rule(name: str, /, **hyper_parameters: Any) -> KeepRule:
    """Build a rule by name.

    Raises:
        UnknownNameError: no such rule, or no such hyper-parameter.
        RangeError: a hyper-parameter is outside its bound.
    """
    known = {**RULES, **_foreign()}
    rule = known[check_choice("rule", name, known)]
    for key in hyper_parameters:
        check_choice(f"hyper-parameter of rule {name!r}", key, [field.name for field in fields(rule)])
    return rule(**hyper_parameters)
