from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entr_lab.errors import EngineError, RangeError
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.records import SamplingSpec
from entr_lab.real.remote_generator import RemoteGenerator, spawn_generators
from entr_lab.real.weight_transfer import WeightManifest

SETTINGS = EngineSettings(model="m", dtype="float32")


def test_no_generators_is_an_error() -> None:
    with pytest.raises(RangeError, match="number of generators"):
        spawn_generators(SETTINGS, 0)


# With Ray and vLLM -------------------------------------------------------------------------------------------------


class Remote:
    """One generator actor on an own Ray, and what is needed to update it."""

    def __init__(self, folder: Path) -> None:
        from entr_lab.real.cluster import Cluster
        from entr_lab.real.weight_transfer import SharedMemorySender
        from tests.real.engines import make_model

        self.strangers = set(children())  # engines of other tests
        self.model = make_model(folder, tied=False)
        self.sender = SharedMemorySender()
        self.cluster = Cluster(cpus=2)
        self.settings = EngineSettings(model=str(folder), dtype="float32")
        (self.generator,) = spawn_generators(self.settings)
        self.version = -1

    def publish(self) -> WeightManifest:
        from entr_lab.real.canary import canary_reference, model_logits
        from tests.real.engines import PROMPTS

        self.version += 1
        reference = canary_reference(model_logits(self.model), PROMPTS)
        return self.sender.publish(self.model.state_dict(), self.version, reference)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    pytest.importorskip("vllm")
    pytest.importorskip("ray")
    made = Remote(tmp_path_factory.mktemp("remote"))
    yield made
    made.cluster.shutdown()
    made.sender.close()


async def died(generator: RemoteGenerator) -> str:
    """Generate until the generator fails, and return its message."""
    try:
        await generator.generate([1, 2, 3], SamplingSpec(max_tokens=480))
    except EngineError as error:
        return str(error)
    raise AssertionError("the completion came back")


def gone(pid: int, patience: float = 15.0) -> bool:
    """Whether a process is gone, or will be soon."""
    import psutil

    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_kill_9_of_core_and_actor_and_a_clean_end(remote: Remote) -> None:
    before, files = shared_memory(), temporary_files()
    asyncio.run(kill_and_revive(remote))
    names = {pid: name for pid, name in children().items() if pid not in remote.strangers}
    remote.cluster.shutdown()
    remote.sender.close()
    ours = {pid: name for pid, name in names.items() if "resource_tracker" not in name}
    assert {pid: name for pid, name in ours.items() if not gone(pid)} == {}
    assert shared_memory() <= before
    assert temporary_files() <= files


def children() -> dict[int, str]:
    """Every process below this one, and its command."""
    import psutil

    return {child.pid: " ".join(cmdline(child)) for child in psutil.Process().children(recursive=True)}


def cmdline(child: Any) -> list[str]:
    import psutil

    try:
        return list(child.cmdline())
    except psutil.NoSuchProcess:
        return []


def temporary_files() -> set[str]:
    """Our folders and whatever sockets there are, where temporary files go."""
    here = Path(tempfile.gettempdir())
    return {path.name for path in here.iterdir() if path.is_socket() or path.name.startswith("entr-lab-")}


def shared_memory() -> set[str]:
    """Our folders in shared memory, Ray's, and semaphores that no process has open."""
    names = {path.name for path in Path("/dev/shm").iterdir()}
    semaphores = {name for name in names if name.startswith("sem.")}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text() if semaphores else ""
        except OSError:  # the process has ended meanwhile, or is not ours to look at
            continue
        semaphores = {name for name in semaphores if name not in text}
    return {name for name in names if name.startswith(("entr-lab-", "plasma", "psm_"))} | semaphores


async def kill_and_revive(remote: Remote) -> None:
    generator = remote.generator
    await generator.ready()
    manifest = remote.publish()
    assert (await generator.update_weights(manifest, True)).worst < 1e-4
    (completion,) = await generator.generate([1, 2, 3], SamplingSpec(max_tokens=8))
    assert completion.weight_version.tolist() == [0] * 8
    assert np.isfinite(completion.entropy_mu).all()

    # The engine's core, mid-generation: the call fails within seconds, the actor restarts, weights are pushed again.
    core = (await generator.health())["core_pid"]
    running = asyncio.create_task(died(generator))
    await asyncio.sleep(0.1)
    os.kill(core, signal.SIGKILL)
    message = await asyncio.wait_for(running, 20)
    assert "push the current weights again" in message or "revive it with the current weights" in message
    again = remote.publish()
    assert (await generator.revive(again)).worst < 1e-4
    (completion,) = await generator.generate([1, 2, 3], SamplingSpec(max_tokens=8))
    assert completion.weight_version.tolist() == [1] * 8
    assert gone(core)

    # The actor itself, mid-generation: its core must not outlive it.
    health = await generator.health()
    assert health["core_pid"] != core
    actor = await generator.ready()
    running = asyncio.create_task(died(generator))
    await asyncio.sleep(0.1)
    os.kill(actor, signal.SIGKILL)
    assert "gone or restarting" in await asyncio.wait_for(running, 30)
    assert gone(health["core_pid"])
    assert (await generator.revive(remote.publish())).worst < 1e-4
    await generator.shutdown()
