"""Weights on GPUs: vLLM's own NCCL and CUDA-IPC engines behind the sender's interface.

The trainer's end drives vLLM's protocol (start, update, finish) on the generator actors while their `update_weights`
holds generation paused. No file exists and no byte is checked on the way; the proof is the canary. Written against
vLLM 0.32. Not run on a GPU: what is tested is the order of the calls. Ours, on vLLM's weight transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from entr_lab.errors import ProtocolError, check_choice, check_range
from entr_lab.real.canary import CanaryReference
from entr_lab.real.weight_transfer import WeightManifest, without_ties

__all__ = ["NativeSender", "connect"]


class _Published:
    """Hands vLLM the tensors of the version that was published last, in a fixed order."""

    def __init__(self) -> None:
        self.state: dict[str, Tensor] = {}

    def metadata(self) -> list[Any]:
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.state.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        from vllm.distributed.weight_transfer.base import materialize_full_tensor

        for name, tensor in self.state.items():
            yield name, materialize_full_tensor(tensor)


class NativeSender:
    """A `WeightSender` over an engine of vLLM's.

    Args:
        engine: trainer-side engine of vLLM's, with `send_weights()`.
        published: the source that the engine reads.
    """

    def __init__(self, engine: Any, published: _Published) -> None:
        self._engine = engine
        self._published = published

    def publish(
        self, state: Mapping[str, Tensor], version: int, canary: CanaryReference | None = None
    ) -> WeightManifest:
        """Fix what `push` sends; the tensors must not change until then."""
        self._published.state = {name: tensor.detach() for name, tensor in without_ties(state).items()}
        return WeightManifest(version, canary=canary)

    def push(self) -> None:
        """Send the published weights; blocks until every generator has them.

        Raises:
            ProtocolError: nothing is published.
        """
        if not self._published.state:
            raise ProtocolError("push before publish: publish a version of the weights first.")
        self._engine.send_weights()

    def release(self, manifest: WeightManifest) -> None:
        """Drop the references to the tensors."""
        self._published.state = {}

    def close(self) -> None:
        """Close the connection."""
        self._engine.shutdown()


def connect(
    transfer: Literal["nccl", "ipc"],
    generators: Sequence[Any],
    state: Mapping[str, Tensor],
    *,
    rank: int = 0,
    address: str = "127.0.0.1",
    port: int = 0,
    workers: int = 1,
) -> NativeSender:
    """Open the trainer's end to running generator actors; every trainer process calls it.

    Args:
        transfer: `nccl`, between any GPUs; `ipc`, between processes on the same GPU.
        generators: Ray handles of `actors.GeneratorActor`.
        state: any state dict of the model: names and shapes are agreed on now.
        rank: of this trainer process; rank 0 sends.
        address: of rank 0, reachable from the generators; loopback on one node.
        port: free on rank 0's machine (NCCL only).
        workers: GPUs of all generators together.

    Raises:
        UnknownNameError: no such transfer.
        RangeError: NCCL without a port.
    """
    check_choice("transfer", transfer, ("nccl", "ipc"))
    from vllm.distributed.weight_transfer.clients import RayVLLMWeightSyncClient
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    published = _Published()
    published.state = {name: tensor.detach() for name, tensor in without_ties(state).items()}
    info: Any
    if transfer == "nccl":
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        check_range("port of the nccl transfer", port, low=1, high=65535)
        info = NCCLTrainerInitInfo(address, port, workers + 1, rank=rank)
    else:
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        info = IPCTrainerInitInfo(rank=rank)
    client = RayVLLMWeightSyncClient(list(generators))
    engine = WeightTransferTrainerFactory.trainer_init(info, client=client, source=_source(published))
    published.state = {}
    return NativeSender(engine, published)


def _source(published: _Published) -> Any:
    """Return `published` as a `WeightSource` of vLLM's, whose base class cannot be imported without vLLM."""
    from vllm.distributed.weight_transfer.base import WeightSource

    class Source(WeightSource):  # type: ignore[misc]
        def metadata(self) -> list[Any]:
            return published.metadata()

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            return iter(published)

        # 0.33 asks for the stream under these names.
        iter_full = __iter__
        iter_local = __iter__

    return Source()
