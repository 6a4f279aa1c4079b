"""Two Ray nodes on one machine: a sharded trainer on one, two engines on the other, weights between them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from entr_lab.real.cluster import _stay_on_loopback
_stay_on_loopback(True)
from ray.cluster_utils import Cluster
from entr_lab.cli.main import main
from entr_lab.real.remote_generator import RemoteGenerator

update = RemoteGenerator.update_weights

async def astray(self, manifest, clear_cache):
    # Both nodes share one machine's memory; a path that is nowhere leaves only the way through the object store.
    return await update(self, replace(manifest, path="/nowhere/" + Path(manifest.path).name), clear_cache)

RemoteGenerator.update_weights = astray
# The trainer's two processes want two CPUs of one node, so the engines find theirs only on the other.
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "node_ip_address": "127.0.0.1"})
try:
    cluster.add_node(num_cpus=2, node_ip_address="127.0.0.1")
    settings = ["cluster.ray_address=" + json.dumps(cluster.address), "cluster.nodes=2", "trainer.processes=2",
                "rollout.generators=2", "evaluation.every=3", "evaluation.rollouts=8", "rollout.batch_groups=4"]
    options = [part for setting in settings for part in ("--set", setting)]
    sys.argv = ["entr-lab", "train", "--batches", "3", "--json", "--out", sys.argv[1], *options]
    main()
finally:
    cluster.shutdown()
"""


@pytest.mark.real
def test_a_run_over_two_nodes(tmp_path: Path) -> None:
    """Both engines prove weights that came through the object store; nothing of them stays in shared memory."""
    pytest.importorskip("vllm")
    before = set(Path("/dev/shm").glob("entr-lab-*"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=700,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary = json.loads(done.stdout.strip())
    assert (summary["batches"], summary["version"], summary["groups_trained"]) == (3, 3, 12)
    assert summary["rollouts_lost"] == {}
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert [(line["step"], line["rollouts"]) for line in lines] == [(0, 8), (3, 8)]
    assert set(Path("/dev/shm").glob("entr-lab-*")) <= before
