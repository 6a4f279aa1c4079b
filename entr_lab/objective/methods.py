"""Methods: named combinations of keep rule, anchor, weight, surrogate and reduction, with their papers' defaults.

In a comparison everything but the rule and its weight is one setting shared by all methods (`with_setting`), as in
the ENTR paper: the ratio is π_θ/μ and masked tokens stay in the denominator.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from entr_lab.errors import ConfigError, check_choice, check_member
from entr_lab.objective.advantages import Advantage
from entr_lab.objective.ratios import Anchor
from entr_lab.objective.reductions import Reduction
from entr_lab.objective.surrogates import PlainRatio, Surrogate
from entr_lab.objective.weights import Weight, WeightKind
from entr_lab.rules import BoundedRule, KeepRule, Side, make_rule, rule_names

__all__ = ["METHODS", "Method", "UncappedOutwardWarning", "get_method", "method_names", "parse_method"]


class UncappedOutwardWarning(UserWarning):
    """An outward rule keeps inward tokens of any ratio; without a cap on the weight their variance is unbounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to turn a stale batch into an update.

    Args:
        name: as the user wrote it, hyper-parameters included.
        rule: which tokens to trust.
        anchor: what the ratio divides by.
        weight: how much of the ratio a kept token may carry.
        surrogate: per-token objective.
        reduction: the denominator.
        advantage: how rewards become advantages.
        synchronous: the method trains on rollouts of the current weights (the reference run).
    """

    name: str
    rule: KeepRule
    anchor: Anchor = Anchor.BEHAVIOUR
    weight: Weight = field(default_factory=Weight)
    surrogate: Surrogate = field(default_factory=PlainRatio)
    reduction: Reduction = field(default_factory=Reduction)
    advantage: Advantage = Advantage.GRPO
    synchronous: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor", check_member("anchor", self.anchor, Anchor))
        object.__setattr__(self, "advantage", check_member("advantage", self.advantage, Advantage))
        bounded = self.rule if isinstance(self.rule, BoundedRule) else None
        if self.weight.kind is WeightKind.BOUNDARY and bounded is None:
            raise ConfigError(
                f"method {self.name!r} truncates at the boundary of rule {self.rule.name!r}, which has none in δ; "
                f"truncate at a constant."
            )
        if bounded and bounded.side is Side.OUTWARD and not self.weight.is_capped and bounded.name != "keep-all":
            warnings.warn(
                f"method {self.name!r} keeps inward tokens of any size with an uncapped weight: one wrong recorded "
                f"probability can dominate the update; cap the weight at the rule's boundary (entr-outward does).",
                UncappedOutwardWarning,
                stacklevel=3,
            )

    def with_setting(
        self,
        *,
        surrogate: Surrogate | None = None,
        reduction: Reduction | None = None,
        advantage: Advantage | None = None,
    ) -> Method:
        """Return the method under a setting shared by a whole comparison."""
        return replace(
            self,
            surrogate=surrogate or self.surrogate,
            reduction=reduction or self.reduction,
            advantage=advantage or self.advantage,
        )


def _sync(name: str, /, **hyper: Any) -> Method:
    return Method(name=name, rule=make_rule("keep-all", **hyper), anchor=Anchor.CURRENT, synchronous=True)


def _tis(name: str, /, cap: float = 2.0) -> Method:
    return Method(name=name, rule=make_rule("keep-all"), weight=Weight(kind=WeightKind.TRUNCATED, cap=cap))


def _outward(name: str, /, **hyper: Any) -> Method:
    rule = make_rule("entr", side=Side.OUTWARD, **hyper)
    return Method(name=name, rule=rule, weight=Weight(kind=WeightKind.BOUNDARY))


def _masked(rule: str) -> Callable[..., Method]:
    def build(name: str, /, **hyper: Any) -> Method:
        return Method(name=name, rule=make_rule(rule, **hyper))

    return build


METHODS: Final[dict[str, tuple[Callable[..., Method], str]]] = {
    "sync-grpo": (_sync, "synchronous GRPO: lag 0, ratio π/stopgrad π; the reference"),
    "async-grpo": (_masked("keep-all"), "asynchronous GRPO without a mask"),
    "fixed": (_masked("fixed"), "constant threshold on |δ|"),
    "entr-explore": (_masked("entr-explore"), "Table 2: exploration preservation alone"),
    "entr-outlier": (_masked("entr-outlier"), "Table 2: outlier suppression alone"),
    "icepop": (_masked("icepop"), "constant band on the ratio"),
    "kpop": (_masked("kpop"), "constant two-way binary KL"),
    "m2po": (_masked("m2po"), "second-moment budget of the batch"),
    "entr": (_masked("entr"), "entropy-normalised trust region, as published"),
    "entr-gini": (_masked("entr-gini"), "ours: 1 − Σμ² in place of the entropy"),
    "entr-envelope": (_masked("entr-envelope"), "ours: the sharp variance envelope v(H) in place of the entropy"),
    "tis": (_tis, "truncated importance sampling: no mask, weight min(r, 2)"),
    "entr-outward": (_outward, "ours: ENTR's boundary, outward tokens dropped, weight min(r, e^b)"),
}
"""Builder and one-line description of each method."""


_OWN_HYPER_PARAMETERS: Final[dict[Callable[..., Method], list[str]]] = {_tis: ["cap"], _outward: ["tau", "eps"]}
"""Hyper-parameters of the methods whose builder does not hand all of them to the rule."""


def method_names() -> list[str]:
    """Return the built-in methods in their order of presentation, then rules of other packages as plain masks."""
    own = [method.rule.name for method in (get_method(name) for name in METHODS)]
    return [*METHODS, *(name for name in rule_names() if name not in own)]


def get_method(name: str, /, **hyper_parameters: Any) -> Method:
    """Build a method by name; hyper-parameters are its rule's (or `cap` for TIS).

    A rule that is no method by itself (of another package, say) becomes one: its mask on π_θ/μ with the full ratio.

    Raises:
        UnknownNameError: no such method or hyper-parameter.
        RangeError: a hyper-parameter is outside its bound.
    """
    check_choice("method", name, {*METHODS, *rule_names()})
    build = METHODS[name][0] if name in METHODS else _masked(name)
    arguments = ",".join(f"{key}={value}" for key, value in hyper_parameters.items())
    label = f"{name}({arguments})" if arguments else name
    for key in hyper_parameters if build in _OWN_HYPER_PARAMETERS else ():
        check_choice(f"hyper-parameter of method {name!r}", key, _OWN_HYPER_PARAMETERS[build])
    return build(label, **hyper_parameters)


def parse_method(text: str) -> Method:
    """Build a method from what a user types: `entr` or `entr(tau=1.6,eps=0.1)`.

    Raises:
        ConfigError: the text is not of that form; what `get_method` raises.
    """
    found = re.fullmatch(r"\s*([\w-]+)\s*(?:\(([^()]*)\))?\s*", text)
    if not found:
        raise ConfigError(f"cannot read method {text!r}; write a name, or name(key=value, ...).")
    name, arguments = found.group(1), found.group(2) or ""
    hyper: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in arguments.split(","))):
        key, sign, value = part.partition("=")
        if not sign:
            raise ConfigError(f"cannot read {part!r} in method {text!r}; write key=value.")
        if key.strip() in hyper:
            raise ConfigError(f"{key.strip()!r} stands twice in method {text!r}; write it once.")
        try:
            hyper[key.strip()] = float(value)
        except ValueError:
            hyper[key.strip()] = value.strip()
    return get_method(name, **hyper)
