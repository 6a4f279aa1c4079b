from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from entr_lab.errors import EngineError, RangeError

pytest.importorskip("safetensors")

from entr_lab.real.weight_transfer import (
    SharedMemorySender,
    WeightManifest,
    checksum,
    describe,
    read_weights,
    without_ties,
)


def state() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    embedding = torch.randn(8, 4, generator=random)
    return {
        "embed.weight": embedding,
        "layer.weight": torch.randn(4, 4, generator=random).T,  # not contiguous
        "norm.weight": torch.randn(4, generator=random).bfloat16(),
        "scale": torch.tensor(2.5),
        "head.weight": embedding,  # tied
    }


@pytest.fixture
def sender(tmp_path: Path):
    made = SharedMemorySender(root=tmp_path)
    yield made
    made.close()


def test_what_is_published_is_what_is_read(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    found = read_weights(manifest.to_wire())
    assert sorted(found) == ["embed.weight", "layer.weight", "norm.weight", "scale"]
    for name, tensor in found.items():
        assert torch.equal(tensor, state()[name])
        assert tensor.dtype == state()[name].dtype
    assert manifest.version == 3
    assert manifest.size == Path(manifest.path).stat().st_size


def test_floating_weights_are_cast_on_the_way(tmp_path: Path) -> None:
    sender = SharedMemorySender(torch.bfloat16, tmp_path)
    found = read_weights(sender.publish({"a": torch.randn(3, 3), "steps": torch.arange(3)}, 0).to_wire())
    assert found["a"].dtype == torch.bfloat16
    assert found["steps"].dtype == torch.int64


def test_a_truncated_file_is_refused(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    os.truncate(manifest.path, manifest.size - 1)
    with pytest.raises(EngineError, match=rf"truncated in transfer.*{manifest.size - 1} of {manifest.size} bytes"):
        read_weights(manifest.to_wire())


def test_a_flipped_bit_names_its_tensor(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    path = Path(manifest.path)
    content = bytearray(path.read_bytes())
    needle = state()["norm.weight"].view(torch.uint8).numpy().tobytes()
    content[content.index(needle) + 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(EngineError, match=r"tensor norm\.weight of weights 3 changed in transfer"):
        read_weights(manifest.to_wire())


def test_a_damaged_header_is_refused(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    path = Path(manifest.path)
    path.write_bytes(b"\xff" * manifest.size)
    with pytest.raises(EngineError, match="are damaged"):
        read_weights(manifest.to_wire())


def test_missing_surplus_and_reshaped_tensors_are_named(sender: SharedMemorySender) -> None:
    wire = sender.publish(state(), 3).to_wire()
    with pytest.raises(EngineError, match=r"lack the tensor more\.weight"):
        read_weights(wire | {"tensors": wire["tensors"] | {"more.weight": ["float32", [1], 0]}})
    fewer = {name: record for name, record in wire["tensors"].items() if name != "scale"}
    with pytest.raises(EngineError, match="not published: scale"):
        read_weights(wire | {"tensors": fewer})
    dtype, _, crc32 = wire["tensors"]["norm.weight"]
    with pytest.raises(EngineError, match=r"norm.weight of weights 3 is bfloat16\[4\], published as bfloat16\[2, 2\]"):
        read_weights(wire | {"tensors": wire["tensors"] | {"norm.weight": [dtype, [2, 2], crc32]}})


def test_a_released_file_is_gone_and_says_so(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    sender.release(manifest)
    sender.release(manifest)
    with pytest.raises(EngineError, match="released too early, or this engine runs on another machine"):
        read_weights(manifest.to_wire())
    assert list(sender.folder.iterdir()) == []


def test_tensors_outlive_their_file(sender: SharedMemorySender) -> None:
    manifest = sender.publish(state(), 3)
    found = read_weights(manifest.to_wire())
    Path(manifest.path).write_bytes(b"\0" * manifest.size)
    assert torch.equal(found["embed.weight"], state()["embed.weight"])


def test_a_failed_write_leaves_nothing(sender: SharedMemorySender, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors, path):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(EngineError, match=r"cannot write weights 3 .*No space left"):
        sender.publish(state(), 3)
    assert list(sender.folder.iterdir()) == []


def test_close_removes_all_that_is_left(tmp_path: Path) -> None:
    sender = SharedMemorySender(root=tmp_path)
    sender.publish(state(), 1)
    sender.close()
    assert list(tmp_path.iterdir()) == []


def test_versions_that_float32_cannot_hold_are_refused() -> None:
    assert WeightManifest((1 << 24) - 1).version == (1 << 24) - 1
    with pytest.raises(RangeError, match="weight version"):
        WeightManifest(1 << 24)
    with pytest.raises(RangeError, match="weight version"):
        WeightManifest(-1)


def test_checksum_sees_order_and_sign_of_zero() -> None:
    assert checksum(torch.tensor([1.0, 2.0])) != checksum(torch.tensor([2.0, 1.0]))
    assert checksum(torch.tensor([0.0])) != checksum(torch.tensor([-0.0]))
    assert describe(torch.zeros(2, 3, dtype=torch.int32)).shape == (2, 3)


def test_ties_keep_their_first_name() -> None:
    assert "head.weight" not in without_ties(state())
    assert len(without_ties(state())) == 4
