"""`entr-lab rules`: every keep rule and every method, with inequality, defaults, scope, needs and source."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["rules"]


def rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List keep rules and methods: inequality, defaults, scope, needs, source."""
    from rich.table import Table

    from entr_lab.cli.common import console, strict_json
    from entr_lab.objective import METHODS, get_method
    from entr_lab.rules import make_rule, rule_names

    found = [make_rule(name) for name in rule_names()]
    methods = [(get_method(name), line) for name, (_, line) in METHODS.items()]
    if as_json:
        data = {
            "rules": [
                {
                    "name": rule.name,
                    "keeps": rule.inequality,
                    "defaults": repr(rule),
                    "scope": rule.scope,
                    "needs": sorted(rule.needs),
                    "reference": rule.reference,
                }
                for rule in found
            ],
            "methods": [{"name": method.name, "what": line, "definition": repr(method)} for method, line in methods],
        }
        print(strict_json(data))
        return
    table = Table(title="Keep rules: a token is kept iff", title_justify="left")
    for header in ("rule", "keeps iff", "defaults", "scope", "needs", "source"):
        table.add_column(header, overflow="fold")
    for rule in found:
        needs = ", ".join(sorted(rule.needs)) or "–"
        defaults = repr(rule).partition("(")[2].rstrip(")")
        table.add_row(rule.name, rule.inequality, defaults, rule.scope.value, needs, rule.reference)
    screen = console()
    screen.print(table)
    table = Table(title="Methods: a rule with its anchor, weight, surrogate and denominator", title_justify="left")
    for header in ("method", "what", "rule", "anchor", "weight", "surrogate", "denominator"):
        table.add_column(header, overflow="fold")
    for method, line in methods:
        weight = method.weight.kind.value + (f" {method.weight.cap:g}" if method.weight.kind == "truncated" else "")
        table.add_row(
            method.name,
            line,
            method.rule.name,
            method.anchor.value,
            weight,
            method.surrogate.name,
            method.reduction.denominator.value,
        )
    screen.print(table)
