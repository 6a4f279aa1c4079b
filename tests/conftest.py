"""Settings of the whole suite: reproducible properties, one torch thread, no leaked state of random streams."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: workers share the cores

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from entr_lab.cli.main import main

settings.register_profile(
    "suite",
    derandomize=True,  # the same examples in every run: a red build can be reproduced, a green one means something
    max_examples=40,
    deadline=None,  # no timed assertions
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile("thorough", parent=settings.get_profile("suite"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


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
