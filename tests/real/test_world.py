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
from entr_lab.real import trainer_host
from entr_lab.real.config_io import load_config
from entr_lab.real.config_sections import TrainerConfig
from entr_lab.real.rendezvous import Rendezvous, meet
from entr_lab.real.trainer import Trainer
from entr_lab.real.trainer_host import TrainerHost
from entr_lab.real.weight_transfer import read_weights
from entr_lab.real.world import World, local_state, swapped

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


def _sharded_host(rank: int, size: int, place: str, out: str) -> None:
    os.environ.update(OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    world = meet(Rendezvous(place), rank, size)
    try:
        Path(out, f"host-{rank}.json").write_text(json.dumps(run_host(world)))
    finally:
        torch.distributed.destroy_process_group()


def run_host(world: World) -> dict:
    """Rehearsal, two steps with a probe each, and the state, of a trainer's process."""
    patch = pytest.MonkeyPatch()
    patch.setattr(trainer_host, "load_model", lambda *_: ToyModel())
    patch.setattr(trainer_host, "canary_prompts", lambda vocabulary: ((1, 2, 3), (4,)))
    settings = ["rollout.engine_dtype=float32", "attribution.every=1", "trainer.micro_batch_tokens=40"]
    host = TrainerHost(load_config(None, settings), "m", 12, None, world)
    try:
        odd = host.publish_perturbed()
        rehearsed = {} if odd is None else read_weights(odd.to_wire())  # the true weights take its file's place
        true = host.publish()
        steps = [host.step(toy_rollouts(version=v, spread=min(v, 1)), v, probe=True) for v in range(2)]
        state = host.state()
        if world.rank:
            assert [odd, true, *steps, state] == [None] * 5
            return {}
        manifests = [true, *(step.manifest for step in steps)]
        return {
            "references": [[m.canary.entropy.tolist(), m.canary.top_logp.tolist()] for m in manifests],
            "weights": [{k: v.tolist() for k, v in read_weights(m.to_wire()).items()} for m in manifests],
            "rehearsal": [
                (rehearsed[name] != tensor).float().mean().item()
                for name, tensor in read_weights(true.to_wire()).items()
                if tensor.any()
            ],
            "probes": [step.attribution for step in steps],
            "state": {k: v.tolist() for k, v in state.weights.items()},
        }
    finally:
        host.close()
        patch.undo()


@pytest.mark.slow
def test_a_sharded_trainer_publishes_what_one_process_would(tmp_path):
    """Canaries, weights, attribution and state agree to 1e-5; the others only take part."""
    pytest.importorskip("safetensors")
    place = tmp_path / "meet"
    torch.multiprocessing.spawn(_sharded_host, args=(2, str(place), str(tmp_path)), nprocs=2)
    two = json.loads((tmp_path / "host-0.json").read_text())
    one = json.loads(json.dumps(run_host(World())))
    assert json.loads((tmp_path / "host-1.json").read_text()) == {}
    for mine, theirs in zip(two["references"], one["references"], strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    for mine, theirs in zip([*two["weights"], two["state"]], [*one["weights"], one["state"]], strict=True):
        for name, values in theirs.items():
            np.testing.assert_allclose(mine[name], values, atol=1e-5, err_msg=name)
    for mine, theirs in zip(two["probes"], one["probes"], strict=True):
        assert mine == pytest.approx(theirs, abs=1e-5, nan_ok=True)
    assert two["weights"][0] != two["weights"][1]
    assert min(two["rehearsal"]) > 0.9


def test_swapped_weights_come_back_bit_for_bit():
    """Also after an error inside."""
    model, other = ToyModel(), ToyModel(seed=3)
    before, error = local_state(model), ValueError("inside")

    def fail():
        with swapped(model, local_state(other)):
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
            raise error

    with pytest.raises(ValueError, match="inside"):
        fail()
    after = local_state(model)
    assert all(torch.equal(before[name], after[name]) for name in before)
