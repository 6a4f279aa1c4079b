"""The changelog always has an Unreleased heading, and the versions agree."""

import re
import tomllib
from pathlib import Path

from entr_lab import __version__

ROOT = Path(__file__).resolve().parents[1]


def test_unreleased_heading_exists_and_comes_first():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert headings[0] == "Unreleased"


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["version"] == __version__
    if "dev" not in __version__:
        assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_has_a_reason():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    reasons = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Dependencies")[2]

    missing = [name for item in listed if (name := re.split(r"[><=\[ ;]", item)[0]) not in reasons]
    assert missing == []
