"""Run the command line in this process, through the same entry point as the console script."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from entr_lab.cli.main import main


class Outcome(NamedTuple):
    """Exit code and the two streams."""

    code: int
    out: str
    err: str


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Return a function that runs `entr-lab ARGUMENTS...`."""

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["entr-lab", *arguments])
        monkeypatch.setenv("COLUMNS", "80")
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
