from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from entr_lab.real import folders
from entr_lab.real.folders import own_folder, remove_orphans

CODE = """
import os, sys
from pathlib import Path
from entr_lab.real.folders import own_folder
(own_folder(Path(sys.argv[1])) / "weights").write_text("left behind")
os.kill(os.getpid(), 9)
"""


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_only_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    alive = own_folder(tmp_path)
    (tmp_path / "entr-lab-notes").mkdir()
    assert subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], check=False).returncode == -9
    assert len(names(tmp_path)) == 3
    assert len(remove_orphans(tmp_path)) == 1
    assert names(tmp_path) == {alive.name, "entr-lab-notes"}


def test_folders_of_another_process_namespace_are_left_alone(tmp_path: Path, monkeypatch) -> None:
    assert subprocess.run([sys.executable, "-c", CODE, str(tmp_path)], check=False).returncode == -9
    here = folders._namespace()
    monkeypatch.setattr(folders, "_namespace", lambda: here + 1)
    assert remove_orphans(tmp_path) == []
    assert len(names(tmp_path)) == 1


def test_the_name_leaves_room_for_rays_sockets() -> None:
    folder = own_folder(Path("/tmp"))
    try:
        deepest = folder / "session_2026-11-29_18-53-56_214799_4194304" / "sockets" / "plasma_store.12"
        # A process id has at most seven digits; this one's may have fewer.
        assert len(str(deepest)) + 7 - len(str(os.getpid())) < 107
    finally:
        folder.rmdir()
