from __future__ import annotations

import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from entr_lab.errors import EngineError, RangeError
from entr_lab.real.cluster import Cluster, _is_loopback


def test_numbers_are_checked_before_ray_is_needed() -> None:
    with pytest.raises(RangeError, match="cpus"):
        Cluster(cpus=0)
    with pytest.raises(RangeError, match="object_store_mib"):
        Cluster(object_store_mib=1)


def test_a_start_that_fails_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("psutil")
    folders: list[Path] = []

    def init(fails: int) -> None:
        def start(**options: Any) -> None:
            folders.append(Path(options["_temp_dir"]))
            if len(folders) <= fails:
                raise RuntimeError("timed out during startup")

        folders.clear()
        monkeypatch.setattr(ray, "init", start)

    init(fails=1)
    cluster = Cluster()
    assert [folder.exists() for folder in folders] == [False, True]
    cluster.shutdown()
    assert not folders[1].exists()
    init(fails=2)
    with pytest.raises(EngineError, match="in two attempts: timed out during startup"):
        Cluster()
    assert [folder.exists() for folder in folders] == [False, False]


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("psutil")
    folders: list[Path] = []

    def start(**options: Any) -> None:
        folders.append(Path(options["_temp_dir"]))
        raise SystemExit(15)

    monkeypatch.setattr(ray, "init", start)
    with pytest.raises(SystemExit):
        Cluster()
    assert [folder.exists() for folder in folders] == [False]


def in_process(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints last."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.real
def test_an_own_ray_binds_to_loopback_beside_another_and_leaves_nothing() -> None:
    pytest.importorskip("ray")
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 6379))  # the port that Ray would like best
            taken.listen()
        except OSError:
            pass  # somebody else has it, which is the same to us
        found = in_process(
            """
            import os, pathlib, psutil, ray
            from entr_lab.real.cluster import Cluster
            with Cluster(cpus=1) as first:
                folder = first._folder
                children = psutil.Process().children(recursive=True)
                bad = set()
                commands = [" ".join(child.cmdline()) for child in children]
                assert any("raylet" in command for command in commands)
                assert not [command for command in commands if "monitor.py" in command]
                for child in children:
                    try:
                        for connection in child.net_connections():
                            ip = connection.laddr.ip.removeprefix("::ffff:")
                            if connection.status == psutil.CONN_LISTEN and not ip.startswith(("127.", "::1")):
                                bad.add((child.name(), ip))
                    except psutil.Error:
                        pass
                assert first.owned and first.address.startswith("127.0.0.1:")
                nested = Cluster(cpus=1)
                assert not nested.owned
                nested.shutdown()
                assert ray.is_initialized()
                assert ray.get(ray.remote(lambda: 41 + 1).remote()) == 42
            alive = [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
            print(sorted(bad), [child.name() for child in alive], folder.exists(), ray.is_initialized())
            """
        )
    assert found == "[] [] False False"


@pytest.mark.real
def test_a_missing_cluster_is_one_sentence_and_a_running_one_is_joined_and_left_running() -> None:
    pytest.importorskip("ray")
    found = in_process(
        """
        import subprocess, sys
        from entr_lab.errors import ConfigError
        from entr_lab.real.cluster import Cluster
        try:
            Cluster("127.0.0.1:1")
        except ConfigError as error:
            assert "no Ray cluster at '127.0.0.1:1' (ConnectionRefusedError)" in str(error)
        else:
            raise SystemExit("joined nothing")
        with Cluster(cpus=1) as own:
            code = (
                "from entr_lab.real.cluster import Cluster; import ray, sys;"
                "c = Cluster(sys.argv[1]); assert not c.owned;"
                "print(ray.get(ray.remote(lambda: 6 * 7).remote())); c.shutdown()"
            )
            joined = subprocess.run([sys.executable, "-c", code, own.address], capture_output=True, text=True)
            assert joined.stdout.split()[-1] == "42", joined.stderr[-1500:]
            import ray
            assert ray.get(ray.remote(lambda: 1).remote()) == 1
            print("ok")
        """
    )
    assert found == "ok"


def test_loopback_is_told_from_a_cluster() -> None:
    assert _is_loopback("127.0.0.1:6379")
    assert _is_loopback("localhost:6379")
    assert not _is_loopback("10.0.0.1:6379")
    assert not _is_loopback("auto")
