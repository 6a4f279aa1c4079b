"""`entr-lab theory`: table, one statement, JSON, files, and its exit codes as a gate."""

import json

import pytest
import typer
from typer.testing import CliRunner

from entr_lab.cli.theory import theory
from entr_lab.errors import RangeError, UnknownNameError
from entr_lab.theory import checks as vf
from entr_lab.theory import statements as st


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(theory)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def few(monkeypatch):
    """Only the quick statements, in one process, so that the table is tested without the wait."""
    kept = {k: v for k, v in st.STATEMENTS.items() if k in ("A4", "C2", "F2")}
    monkeypatch.setattr(st, "STATEMENTS", kept)
    monkeypatch.setattr(vf, "STATEMENTS", kept)
    monkeypatch.setattr("entr_lab.cli.common.available_cores", lambda: 1)


def test_table_names_every_statement_and_passes(run, few):
    found = run()
    assert found.exit_code == 0
    for text in ("A4", "C2", "F2", "attained", "boxes", "all 3 statements hold"):
        assert text in found.output


def test_one_statement_in_full(run):
    found = run("--statement", "c2", "--budget", "2")
    assert found.exit_code == 0
    for text in ("C2:", "proof:", "worst instance", "certificate amplification", "|e|/(q+|e|)"):
        assert text in found.output


def test_brackets_of_a_formula_survive_the_markup(run):
    found = run("--statement", "E1", "--budget", "1")
    assert "E_μ[m r f] − E_π[f]" in found.output
    assert "E_π[(1−m) f]" in found.output


def test_json_is_strict_and_repeatable(run):
    first, second = run("--statement", "F2", "--json"), run("--statement", "F2", "--json")
    record = json.loads(first.output)["statements"][0]
    assert record["id"] == "F2"
    assert record["holds"] is True
    assert record["findings"][0]["kind"] == "identity"
    assert first.output == second.output


def test_files_are_written_once(run, tmp_path):
    folder = tmp_path / "t"
    assert run("--statement", "F2", "--out", str(folder)).exit_code == 0
    assert json.loads((folder / "theory.json").read_text())["statements"][0]["id"] == "F2"
    assert len(list(folder.glob("*.png"))) == 4
    assert "already holds files" in str(run("--statement", "F2", "--out", str(folder)).exception)


def test_a_violation_exits_1(run, few, monkeypatch):
    broken = st.check_parts(st.Part("false", lambda p: 2.0 + 0.0 * p.logp_mu[:, 0], sharp=False))
    wrong = st.Statement("A4", "a false statement", "ours", "none", broken)
    monkeypatch.setitem(st.STATEMENTS, "A4", wrong)
    found = run("--budget", "1")
    assert found.exit_code == 1
    assert "violated: A4" in found.output
    assert json.loads(run("--statement", "A4", "--json").output)["statements"][0]["holds"] is False


def test_bad_input_is_refused_with_the_nearest_name(run):
    assert isinstance(run("--statement", "B33").exception, UnknownNameError)
    assert "did you mean 'B3'" in str(run("--statement", "B33").exception)
    assert isinstance(run("--statement", "F2", "--budget", "0").exception, RangeError)
    assert run("--seed", "-1").exit_code == 2
