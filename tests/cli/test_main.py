"""The entry point: help, version, and errors as one sentence."""

import pytest

from entr_lab import __version__


def test_help_lists_the_commands(run_cli):
    outcome = run_cli("--help")

    assert outcome.code == 0
    assert "sim" in outcome.out
    assert "rules" in outcome.out


def test_version(run_cli):
    assert run_cli("--version").out == f"entr-lab {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [(("simm",), "sim"), (("sim", "--stalness", "3"), "--staleness"), (("rules", "--jsn"), "--json")],
)
def test_a_misspelt_word_exits_2_and_names_the_nearest(run_cli, arguments, hint):
    outcome = run_cli(*arguments)

    assert outcome.code == 2
    assert hint in outcome.err
    assert "Traceback" not in outcome.err
