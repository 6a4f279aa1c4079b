"""The rules that every battery runs on: each of `RULES`, both sides where it has two, and looser and tighter ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from entr_lab.rules import RULES, BoundedRule, KeepRule, Side

GOLDEN = Path(__file__).parents[1] / "golden"

DEFAULTS: list[KeepRule] = [kind() for kind in RULES.values()]
OUTWARD: list[KeepRule] = [kind(side=Side.OUTWARD) for kind in RULES.values() if issubclass(kind, BoundedRule)]
SCALED: list[KeepRule] = [rule.scaled(factor) for rule in DEFAULTS for factor in (0.2, 3.0) if rule.name != "keep-all"]


def golden(name: str) -> dict[str, Any]:
    """Read a golden file; its header says where the numbers come from."""
    record: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    assert record["source"]
    return record
