"""Provenance is plain data and names this checkout."""

import json
import subprocess
from pathlib import Path

from entr_lab.report.provenance import provenance

ROOT = Path(__file__).resolve().parents[2]


def test_names_versions_and_commit():
    data = json.loads(json.dumps(provenance()))

    assert data["packages"]["entr-lab"]
    assert data["packages"]["torch"]
    assert data["machine"]["processor"]
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode == 0:
        assert data["commit"].removesuffix("+changes") == head.stdout.strip()
