"""What runs inside vLLM's worker: the entropy hook and the shared-memory weight transfer.

vLLM imports the module of `worker_extension_cls` in every worker before the engine is built; importing this one puts
the hook into the samplers of both model runners and registers the transfer. Imported nowhere else. Ours, on vLLM 0.32.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.platforms import current_platform
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.sampler import Sampler

from entr_lab.errors import EngineError
from entr_lab.real import engine_hook_v2, engine_products, weight_loading
from entr_lab.real.behaviour import COLUMNS, behaviour_columns
from entr_lab.real.weight_transfer import read_weights

__all__ = ["ShmInit", "ShmTransferEngine", "ShmUpdate", "WorkerExtension", "gather_behaviour"]


@dataclass
class _WorkerState:
    """The version of the weights in this worker, and tensors that passed their checks and wait to be loaded."""

    version: int = 0
    pending: dict[str, Tensor] | None = None


_STATE = _WorkerState()
_stock_gather = Sampler.gather_logprobs


def gather_behaviour(logprobs: Tensor, num_logprobs: int, token_ids: Tensor) -> LogprobsTensors:
    """Return the hook's row for each token; for any other number of columns what vLLM returns.

    Args:
        logprobs: `[R, V]` of the processed distribution.
        num_logprobs: the greatest number of log-probs that a request of the batch asked for.
        token_ids: `[R]` int64.
    """
    if num_logprobs != COLUMNS:
        return _stock_gather(logprobs, num_logprobs, token_ids)
    ids, values = behaviour_columns(logprobs, token_ids, _STATE.version)
    return LogprobsTensors(ids, values, torch.zeros(len(ids), dtype=torch.int32, device=ids.device))


@dataclass
class ShmInit(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing to agree on beforehand."""


@dataclass
class ShmUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A manifest as plain data: see `WeightManifest.to_wire`."""

    path: str
    size: int
    version: int
    tensors: dict[str, Any] = field(default_factory=dict)


class ShmTransferEngine(WeightTransferEngine[ShmInit, ShmUpdate]):  # type: ignore[misc]
    """vLLM's transfer interface over a file in shared memory."""

    init_info_cls = ShmInit
    update_info_cls = ShmUpdate

    def init_transfer_engine(self, init_info: ShmInit) -> None:
        """Do nothing: there is no connection."""

    def start_weight_update(self) -> None:
        """Do nothing: the model is touched only once the tensors have passed their checks."""

    def receive_weights(self, update_info: ShmUpdate) -> None:
        """Load the tensors that `check_weights` read, or read them now."""
        tensors, _STATE.pending = _STATE.pending, None
        if tensors is None:
            tensors = read_weights(vars(update_info))
        weight_loading.load_in_place(self.model, self.model_config, tensors)

    def finish_weight_update(self) -> None:
        """Do nothing: the load is complete when `receive_weights` returns."""

    def shutdown(self) -> None:
        """Drop tensors that were never loaded."""
        _STATE.pending = None


class WorkerExtension:
    """Calls that the generator makes on every worker by `collective_rpc`; mixed into vLLM's worker class."""

    def check_weights(self, wire: dict[str, Any]) -> str:
        """Read a published file and keep its tensors for the update that follows; return what is wrong, or nothing."""
        try:
            _STATE.pending = read_weights(wire)
        except EngineError as error:
            return str(error)
        return ""

    def tag_weights(self, version: int) -> None:
        """Stamp `version` on the tokens from now on."""
        _STATE.version = version

    def take_weights(self: Any, wire: dict[str, Any]) -> None:
        """Load a published file and tag it: one call of the engine while generation stands still."""
        self.start_weight_update()
        self.update_weights(update_info=wire)
        self.finish_weight_update()
        self.tag_weights(wire["version"])


def _install() -> None:
    # A progress bar takes a lock between processes by default: a semaphore in shared memory, which a kill leaves there.
    tqdm.set_lock(threading.RLock())
    Sampler.gather_logprobs = staticmethod(gather_behaviour)
    if current_platform.is_cuda_alike():
        engine_hook_v2.install(lambda: _STATE.version)
    WeightTransferEngineFactory.register_engine("shm", ShmTransferEngine)
    engine_products.install()


_install()
