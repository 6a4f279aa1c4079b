"""`entr-lab rules`: every keep rule and every method, with inequality, defaults, scope, needs and source."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["rules"]


def rules(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List keep rules and methods: inequality, defaults, scope, needs, source."""
    from math import inf

    from rich import box
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
    screen = console()
    layout: dict[str, Any] = {"title_justify": "left", "box": box.SIMPLE_HEAD}
    table = Table(title="Keep rules: a token is kept iff", padding=(0, 0, 1, 0), **layout)
    for header in ("rule", "keeps iff, defaults", "scope, needs, source"):
        table.add_column(header, no_wrap=header == "rule", overflow="fold")
    for rule in found:
        needs = ", ".join(sorted(rule.needs)) or "log-ratio only"
        defaults = repr(rule).partition("(")[2].rstrip(")")
        table.add_row(rule.name, f"{rule.inequality}\n{defaults}", f"{rule.scope.value}; {needs}\n{rule.reference}")
    screen.print(table)
    table = Table(title="Methods", padding=0, **layout)
    for header in ("method", "what", "anchor", "weight"):
        table.add_column(header, no_wrap=header == "method", overflow="fold")
    for method, line in methods:
        weight = method.weight.kind.value + (f" {method.weight.cap:g}" if method.weight.cap < inf else "")
        table.add_row(method.name, line, method.anchor.value, weight)
    screen.print(table)
    shared = methods[0][0]
    denominator = shared.reduction.denominator.value
    screen.print(f"All by default: surrogate {shared.surrogate.name}, denominator {denominator}.")
