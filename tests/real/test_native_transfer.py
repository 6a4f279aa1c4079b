"""The order of the calls; nothing here was sent over NCCL or IPC."""

from __future__ import annotations

import pytest
import torch

from entr_lab.errors import ProtocolError, UnknownNameError
from entr_lab.real.native_transfer import NativeSender, _Published, connect


class Engine:
    def __init__(self, published: _Published) -> None:
        self.published = published
        self.sent: list[dict[str, torch.Tensor]] = []

    def send_weights(self) -> None:
        self.sent.append(dict(self.published.state))

    def shutdown(self) -> None:
        self.sent.append({})


def test_push_sends_what_was_published_last() -> None:
    published = _Published()
    engine = Engine(published)
    sender = NativeSender(engine, published)
    with pytest.raises(ProtocolError, match="push before publish"):
        sender.push()
    weight = torch.randn(3, requires_grad=True)
    manifest = sender.publish({"embed": weight, "head": weight}, 4)
    assert (manifest.version, manifest.path, dict(manifest.tensors)) == (4, "", {})
    sender.push()
    assert list(engine.sent[0]) == ["embed"]  # the tied name goes once
    assert not engine.sent[0]["embed"].requires_grad
    sender.release(manifest)
    with pytest.raises(ProtocolError):
        sender.push()


def test_unknown_transports_are_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'nccl'"):
        connect("ncc", [], {})  # type: ignore[arg-type]


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_the_source_is_what_vllm_asks_for() -> None:
    base = pytest.importorskip("vllm.distributed.weight_transfer.base")
    from entr_lab.real.native_transfer import _source

    published = _Published()
    published.state = {"model.layers.0.w": torch.ones(2), "norm": torch.zeros(1)}
    source = _source(published)
    assert isinstance(source, base.WeightSource)
    assert [(meta.name, meta.shape) for meta in source.metadata()] == [("model.layers.0.w", (2,)), ("norm", (1,))]
    assert [name for name, _ in source] == ["model.layers.0.w", "norm"]
