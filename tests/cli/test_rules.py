"""`entr-lab rules` shows every rule and method."""

import json

from entr_lab.objective import METHODS
from entr_lab.rules import rule_names


def test_table_shows_every_rule_and_method(run_cli):
    outcome = run_cli("rules")

    assert outcome.code == 0
    for name in (*rule_names(), *METHODS):
        assert name in outcome.out


def test_json_is_strict_and_complete(run_cli):
    data = json.loads(run_cli("rules", "--json").out)

    assert [rule["name"] for rule in data["rules"]] == rule_names()
    assert [method["name"] for method in data["methods"]] == list(METHODS)
    assert all(rule["reference"] and rule["keeps"] for rule in data["rules"])
