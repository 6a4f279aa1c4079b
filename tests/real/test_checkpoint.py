"""Checkpoints that are whole, proved, rotated, and survive a full disk, a kill and flipped bytes."""

import json
import multiprocessing
import os
import resource
import signal

import pytest
import torch

from entr_lab.errors import DataError, EngineError
from entr_lab.objective import get_method
from entr_lab.real.config_sections import TrainerConfig
from entr_lab.real.trainer import Trainer

from .fakes import ToyModel, toy_rollouts

pytest.importorskip("safetensors")
from entr_lab.real.checkpoint import (
    Checkpoint,
    export_model,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)


def checkpoint(step=1, size=3):
    """A small checkpoint."""
    return Checkpoint(
        step,
        {"w": torch.arange(size, dtype=torch.float32)},
        {"w/exp_avg": torch.ones(size), "w/step": torch.tensor(3.0)},
        {"lengths": torch.tensor([[1, 2]])},
        {"cursor": 7, "pipeline": {"version": 4, "groups": [[1, "a"]]}},
    )


def names(root):
    """Folders of a run, hidden ones included."""
    return sorted(path.name for path in root.iterdir())


def test_round_trip(tmp_path):
    """Tensors bit for bit, plain data as it was."""
    folder = save_checkpoint(tmp_path, checkpoint())
    back = load_checkpoint(folder)

    assert back.step == 1
    assert back.state == checkpoint().state
    for part in ("weights", "optimizer", "rollouts"):
        assert getattr(back, part).keys() == getattr(checkpoint(), part).keys()
        assert all(torch.equal(v, getattr(back, part)[k]) for k, v in getattr(checkpoint(), part).items())
    assert sorted(path.suffix for path in folder.iterdir()) == [".json"] * 2 + [".safetensors"] * 3


def test_a_trainer_goes_on_from_disk_bit_for_bit(tmp_path):
    """What was saved and loaded makes the same next update."""
    first, second = (Trainer(ToyModel(seed=s), TrainerConfig(learning_rate=1e-2)) for s in (0, 5))
    first.update(toy_rollouts(seed=1), 0, get_method("entr"))
    weights, optimizer, counters = first.state()
    save_checkpoint(tmp_path, Checkpoint(1, weights, optimizer, state={"trainer": counters}))
    back = load_checkpoint(latest_checkpoint(tmp_path))
    second.load_state(back.weights, back.optimizer, back.state["trainer"])
    for trainer in (first, second):
        trainer.update(toy_rollouts(seed=2, version=1), 1, get_method("entr"))

    assert all(torch.equal(v, second.weights()[k]) for k, v in first.weights().items())


def test_only_the_newest_are_kept(tmp_path):
    """`keep` counts whole checkpoints; other folders are left alone."""
    (tmp_path / "notes").mkdir()
    for step in (1, 2, 3, 10):
        save_checkpoint(tmp_path, checkpoint(step), keep=2)

    assert names(tmp_path) == ["notes", "step-00000003", "step-00000010"]
    assert latest_checkpoint(tmp_path).name == "step-00000010"


def test_the_same_step_again_replaces(tmp_path):
    """A resumed run writes step 1 once more."""
    save_checkpoint(tmp_path, checkpoint(1, size=3))
    save_checkpoint(tmp_path, checkpoint(1, size=5))

    assert len(load_checkpoint(latest_checkpoint(tmp_path)).weights["w"]) == 5
    assert names(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "rollouts.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damage_is_named(tmp_path, name, damage):
    """One flipped bit, a truncated file or a missing one is found and the file is named."""
    path = save_checkpoint(tmp_path, checkpoint()) / name
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        path.unlink()
    with pytest.raises(DataError, match=name):
        load_checkpoint(path.parent)


def test_a_damaged_manifest_is_no_checkpoint(tmp_path):
    """Not JSON, of another format, or with files left out."""
    folder = save_checkpoint(tmp_path, checkpoint())
    manifest = json.loads((folder / "manifest.json").read_text())
    for content, message in (
        ("{", "no readable manifest"),
        (json.dumps({"format": 1, "files": {}}), "no readable manifest"),
        (json.dumps({**manifest, "format": 99}), "format 99"),
    ):
        (folder / "manifest.json").write_text(content)
        with pytest.raises(DataError, match=message):
            load_checkpoint(folder)


def test_a_manifest_cannot_point_elsewhere(tmp_path):
    """Names are taken inside the folder only."""
    folder = save_checkpoint(tmp_path, checkpoint())
    outside = tmp_path / "outside"
    outside.write_text("x")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["../outside"] = {"bytes": 1, "sha256": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="step-00000001/outside"):
        load_checkpoint(folder)


def _write_with_full_disk(root, queue):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        save_checkpoint(root, checkpoint(2, size=100_000))
    except EngineError as error:
        queue.put(str(error))


def test_a_full_disk_leaves_the_previous_checkpoint(tmp_path):
    """The write fails in the kernel; one sentence, no half-written folder, step 1 still good."""
    save_checkpoint(tmp_path, checkpoint(1))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_write_with_full_disk, args=(tmp_path, queue))
    process.start()
    message = queue.get(timeout=120)
    process.join()

    assert "step-00000002 was not written" in message
    assert names(tmp_path) == ["step-00000001"]
    assert load_checkpoint(latest_checkpoint(tmp_path)).step == 1


def test_a_kill_while_writing_leaves_the_previous_checkpoint(tmp_path):
    """What a killed process left is no checkpoint, and the next save removes it."""
    save_checkpoint(tmp_path, checkpoint(1))
    pid = os.fork()
    if not pid:
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        save_checkpoint(tmp_path, checkpoint(2))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert len(names(tmp_path)) == 2

    assert latest_checkpoint(tmp_path).name == "step-00000001"
    save_checkpoint(tmp_path, checkpoint(3))
    assert names(tmp_path) == ["step-00000001", "step-00000003"]


def test_state_that_is_not_plain_data_is_refused(tmp_path):
    """No pickle, so no objects."""
    with pytest.raises(EngineError, match="not written"):
        save_checkpoint(tmp_path, Checkpoint(1, {}, state={"x": object()}))
    assert names(tmp_path) == []


def test_no_checkpoint(tmp_path):
    """Neither an empty folder nor a missing one holds a run."""
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="no checkpoint"):
            latest_checkpoint(root)


def test_export(tmp_path):
    """Configuration and tokenizer of the model, weights of the checkpoint; nothing is overwritten."""
    from safetensors.torch import load_file

    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"old")
    target = export_model(checkpoint(), model, tmp_path / "out")

    assert names(target) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert torch.equal(load_file(target / "model.safetensors")["w"], checkpoint().weights["w"])
    with pytest.raises(DataError, match="exists"):
        export_model(checkpoint(), model, target)
    with pytest.raises(DataError, match=r"config\.json"):
        export_model(checkpoint(), tmp_path / "out2", tmp_path / "new")
