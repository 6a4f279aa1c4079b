"""What an import costs: each package in a fresh interpreter, and what it has loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("ray", "vllm", "transformers")
SLOW = ("torch", "scipy", "matplotlib", "pyarrow", "numpy", *HEAVY)

WALK = """
import importlib, pkgutil, sys
for name in {names!r}:
    package = importlib.import_module(name)
    if name == "entr_lab":
        continue  # the root alone; its parts are imported one by one
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), name + "."):
        importlib.import_module(module.name)
print(*sorted(set({watched!r}) & set(sys.modules)))
"""

HELP = """
import sys
sys.argv = ["entr-lab", "--help"]
from entr_lab.cli.main import main
try:
    main()
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
print("LOADED", *sorted(set({watched!r}) & set(sys.modules)))
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("names", "watched"),
    [
        (("entr_lab",), SLOW),
        (("entr_lab.errors",), SLOW),
        (("entr_lab.pipeline",), SLOW),
        (("entr_lab.theory",), ("torch", *HEAVY)),
    ],
    ids=lambda value: value[0],
)
def test_light_packages_load_nothing_slow(names: tuple[str, ...], watched: tuple[str, ...]) -> None:
    assert _run(WALK.format(names=names, watched=watched)).split() == []


def test_rules_simulator_and_contract_load_neither_engine_nor_test_tool() -> None:
    names = ("entr_lab.rules", "entr_lab.objective", "entr_lab.diagnostics", "entr_lab.testing", "entr_lab.sim")
    watched = (*HEAVY, "hypothesis", "pytest")
    assert _run(WALK.format(names=names, watched=watched)).split() == []


def test_the_real_path_loads_its_engines_only_when_it_uses_them() -> None:
    assert _run(WALK.format(names=("entr_lab.real.config",), watched=HEAVY)).split() == []


def test_help_loads_no_torch() -> None:
    output = _run(HELP.format(watched=SLOW))
    assert "Usage" in output
    assert output.splitlines()[-1].split() == ["LOADED"]
