"""The README's commands run, its links exist, and its table is of this version's methods.

Commands are run as written, made cheaper by options at the end: what is tested is that they parse, work and write.
The main command runs at full size in the benchmarks.
"""

import re
import shlex
from pathlib import Path

import pytest

from entr_lab.cli.sim import DEFAULT_METHODS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHEAPER = {
    "sim": ["--updates", "3", "--seeds", "2", "--workers", "1"],
    "open-loop": ["--seeds", "1"],
    "theory": ["--budget", "2"],
    "plan": ["--steps", "8", "--seeds", "1", "--no-search"],
    "rules": [],
    "train": ["--dry-run"],
}


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.partition("#")[0].strip() for block in blocks for line in block.splitlines()]
    quoted = re.findall(r"`(entr-lab [^`]+)`", README)
    return sorted({line for line in [*lines, *quoted] if line.startswith("entr-lab ")})


def test_the_mission_command_is_there():
    assert "entr-lab sim --staleness 30" in commands()


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_command_runs(run_cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    kind = "open-loop" if "--open-loop" in words else words[0]

    outcome = run_cli(*words, *CHEAPER[kind])

    assert outcome.code == 0, outcome.err
    assert outcome.out


def test_shown_table_has_the_default_methods_in_order():
    block = re.search(r"```\n(staleness 30 .*?)```", README, flags=re.DOTALL)
    rows = [line.split()[0] for line in block.group(1).splitlines() if re.search(r"\d/8 ", line)]

    assert rows == DEFAULT_METHODS.split(",")


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_python_snippet_runs():
    import torch

    code = re.search(r"```python\n(.*?)```", README, flags=re.DOTALL).group(1)
    ids = torch.zeros(4, dtype=torch.int64)
    names = {
        "logp_pi": torch.full((4,), -1.0, requires_grad=True),
        "logp_mu": torch.full((4,), -1.1),
        "entropy": torch.full((4,), 0.5),
        "advantage": torch.tensor([1.0, -1.0, 1.0, -1.0]),
        "sequence": ids,
        "group": ids,
        "version": ids,
    }

    exec(compile(code, "README.md", "exec"), names)

    assert names["loss"].isfinite()
