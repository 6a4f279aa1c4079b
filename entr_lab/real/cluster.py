"""Ray for one run: an own one on loopback that leaves nothing behind, or a cluster that is joined. Ours."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from entr_lab.errors import ConfigError, EngineError, check_range
from entr_lab.real.folders import SHARED_MEMORY, own_folder, remove_orphans
from entr_lab.real.processes import StartedProcesses

__all__ = ["Cluster"]

_ANSWER: Final = 10.0
"""Seconds that a cluster gets to answer at its port."""


class Cluster:
    """A running Ray, as a context manager.

    Args:
        address: `local` starts a Ray of our own on this machine, bound to loopback, even if another one runs here;
            `auto` or `host:port` joins a cluster. In a process that is already connected to Ray, that Ray is used
            and left running.
        cpus: CPUs that an own Ray hands out; actors of a laptop run reserve fewer than one each.
        object_store_mib: of an own Ray; weights do not pass through it.

    Raises:
        RangeError: a number is too small.
        ConfigError: there is no cluster at `address`.
        EngineError: an own Ray did not start.
    """

    def __init__(self, address: str = "local", *, cpus: int = 4, object_store_mib: int = 128) -> None:
        check_range("cpus", cpus, low=1)
        check_range("object_store_mib", object_store_mib, low=80)
        _stay_on_loopback(address == "local" or _is_loopback(address))
        import ray

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray watches memory of the whole machine and would kill our actors for what others use.
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
        # Ray runs workers at the lowest priority but four; whatever else this machine does would starve the engines.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Workers started in advance have no environment variables of an actor, so no actor of ours would use them.
        os.environ.setdefault("RAY_enable_worker_prestart", "0")
        self._ray = ray
        self._folder: Path | None = None
        self._processes = StartedProcesses()
        self.owned = not ray.is_initialized() and address == "local"
        """Whether this object started Ray and stops it."""
        self._connected = not ray.is_initialized()
        if not self._connected:
            return
        try:
            if address == "local":
                self._start(cpus, object_store_mib)
            else:
                self._join(address)
        except BaseException:  # an interrupt too leaves nothing behind
            self.shutdown()
            raise

    def _join(self, address: str) -> None:
        try:
            if address != "auto":
                # Ray itself would try for minutes before it says that nobody answers.
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=_ANSWER).close()
            self._ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        except Exception as error:
            raise ConfigError(
                f"no Ray cluster at {address!r} ({type(error).__name__}); start one with `ray start --head`, or set "
                f"ray_address to 'local' to run on this machine alone."
            ) from error

    def _start(self, cpus: int, object_store_mib: int) -> None:
        remove_orphans(Path(tempfile.gettempdir()))
        try:
            self._begin(cpus, object_store_mib)
        except Exception:
            # Ray gives itself half a minute, which a busy machine may need for reading Ray's files alone.
            self._end()
            try:
                self._begin(cpus, object_store_mib)
            except Exception as error:
                raise EngineError(f"Ray did not start on this machine, in two attempts: {error}") from error

    def _begin(self, cpus: int, object_store_mib: int) -> None:
        self._folder = own_folder(Path(tempfile.gettempdir()))
        try:
            with _lean_node():
                self._ray.init(
                    address="local",
                    num_cpus=cpus,
                    object_store_memory=object_store_mib << 20,
                    include_dashboard=False,
                    logging_level="ERROR",
                    log_to_driver=False,
                    _temp_dir=str(self._folder),
                )
        finally:
            self._processes.find()

    @property
    def address(self) -> str:
        """Where others can join, `host:port`."""
        return str(self._ray.get_runtime_context().gcs_address)

    def shutdown(self) -> None:
        """Disconnect; stop an own Ray, wait until its processes are gone and remove its files."""
        if self._connected:
            self._end()
            self._connected = False
        for root in (SHARED_MEMORY, Path(tempfile.gettempdir())):  # of actors that were killed
            remove_orphans(root)

    def _end(self) -> None:
        with contextlib.suppress(Exception):  # a Ray that died cannot be disconnected from
            self._ray.shutdown()
        if self.owned:
            self._processes.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.shutdown()


@contextlib.contextmanager
def _lean_node() -> Iterator[None]:
    """Start a node without the processes that read logs for the driver and scale the cluster.

    Together they are 160 MB and some seconds of CPU, just while the first actors start. Ray has no public switch for
    them; where its class has no such methods, the node is started whole.
    """
    from ray._private.node import Node

    spared = {name: getattr(Node, name) for name in ("start_log_monitor", "start_monitor") if hasattr(Node, name)}
    for name in spared:
        setattr(Node, name, lambda self: None)
    try:
        yield
    finally:
        for name, method in spared.items():
            setattr(Node, name, method)


def _is_loopback(address: str) -> bool:
    return address.rpartition(":")[0] in ("127.0.0.1", "localhost", "::1")


def _stay_on_loopback(on: bool) -> None:
    """Make Ray take 127.0.0.1 for this machine's address, or the network card's as it does by itself.

    Ray's servers bind to nothing but loopback if that is the machine's address. Given 127.0.0.1 as a node's address,
    Ray on Linux replaces it by the card's and listens everywhere; the one switch that prevents this is its own for
    desktops, which is read when Ray is imported.
    """
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if on else "1"
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = not on
