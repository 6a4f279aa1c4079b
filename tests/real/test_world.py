"""Two gloo processes on the CPU against one: the same losses, masks and weights, batch-scope rules included."""

import json
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from entr_lab.objective import get_method
from entr_lab.real.config import TrainerConfig
from entr_lab.real.trainer import Trainer
from entr_lab.real.world import World

from .fakes import ToyModel, toy_rollouts

METHODS = ("entr", "m2po", "icepop", "entr-outward")


def run_updates(world: World) -> dict:
    """Two updates with each method; whole weights and flat records."""
    record = {}
    for name in METHODS:
        config = TrainerConfig(learning_rate=1e-2, micro_batch_tokens=40, mini_batches=2)
        trainer = Trainer(ToyModel(), config, world=world)
        rows = []
        for index in range(2):
            groups = toy_rollouts(groups=4, size=3, seed=index, version=trainer.version, spread=1)
            groups = [[shift(r) for r in group] for group in groups]
            step = trainer.update(groups, trainer.version, get_method(name))
            rows.append(
                {
                    "metrics": {k: v for k, v in step.metrics.items() if k != "update_seconds"},
                    "keep": [k.tolist() for k in step.keep],
                    "logp": [np.nan_to_num(x).tolist() for x in step.logp_pi],
                }
            )
        weights, optimizer, counters = trainer.state()
        record[name] = {
            "rows": rows,
            "weights": {k: v.tolist() for k, v in weights.items()},
            "optimizer": {k: v.tolist() for k, v in optimizer.items()},
            "counters": counters,
        }
        other = Trainer(ToyModel(seed=5), config, world=world)
        other.load_state(weights, optimizer, counters)
        again = other.state()
        assert all(torch.equal(again[0][k], v) for k, v in weights.items())
        assert all(torch.equal(again[1][k], v) for k, v in optimizer.items())
    return record


def shift(rollout):
    """Versions below zero do not exist."""
    np.maximum(rollout.weight_version, 0, out=rollout.weight_version)
    return rollout


def _child(rank: int, size: int, port: int, out: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
    try:
        record = run_updates(World.current())
        Path(out, f"{rank}.json").write_text(json.dumps(record))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="gloo")
def test_two_processes_equal_one(tmp_path):
    """Losses and weights agree to 1e-5, masks exactly, on both ranks, through checkpoint and restore."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_child, args=(2, port, str(tmp_path)), nprocs=2)
    one = json.loads(json.dumps(run_updates(World())))
    for rank in range(2):
        two = json.loads((tmp_path / f"{rank}.json").read_text())
        for name in METHODS:
            for mine, theirs in zip(two[name]["rows"], one[name]["rows"], strict=True):
                assert mine["keep"] == theirs["keep"]
                assert 0 < mine["metrics"]["masked_frac"] < 1
                for key, value in theirs["metrics"].items():
                    assert mine["metrics"][key] == pytest.approx(value, abs=1e-5, rel=1e-4, nan_ok=True), key
                for a, b in zip(mine["logp"], theirs["logp"], strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-5)
            for part in ("weights", "optimizer"):
                for key, value in one[name][part].items():
                    np.testing.assert_allclose(two[name][part][key], value, atol=2e-5, err_msg=key)
            assert two[name]["counters"] == one[name]["counters"]


def test_a_world_of_one_passes_sums_through():
    """One process holds the whole batch."""
    total = torch.ones(3)

    assert World().reduce(total) is total
    assert World.current() == World(0, 1)
