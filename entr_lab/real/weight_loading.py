"""The worker's end of a weight update: new tensors into a model that is being served. Runs inside the engine.

vLLM reloads layer by layer, which restores, refills and re-packs each linear layer. On CPU that misses one case: a head
tied to the embedding keeps the packed copy that was made of the old embedding, and the engine samples from a mixture of
two policies without any error. `refresh_tied_head` packs it again. Ours, on vLLM's reload.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from entr_lab.errors import EngineError

__all__ = ["load_in_place", "refresh_tied_head"]


@torch.no_grad()
def load_in_place(model: nn.Module, model_config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Load all weights of `model` from tensors under Hugging Face names.

    Raises:
        EngineError: a parameter of the engine's model was not covered; the message names it. The engine's weights are
            then a mixture and must not be sampled from.
    """
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

    initialize_layerwise_reload(model)
    loaded = model.load_weights(iter(tensors.items()))  # type: ignore[operator]
    missing = _uncovered(model, loaded)
    finalize_layerwise_reload(model, model_config)
    refresh_tied_head(model)
    if missing:
        raise EngineError(
            f"the published weights do not cover {missing[0]} ({len(missing)} parameters of the engine in all); "
            f"publish the whole state dict under Hugging Face names."
        )


def _uncovered(model: nn.Module, loaded: set[str]) -> list[str]:
    """Return parameters that got no weights, or only a part: a fused layer counts the elements that it received."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    found = []
    for prefix, layer in model.named_modules():
        info = get_layerwise_info(layer)
        if not info.can_load() or (_is_tied(model) and layer is getattr(model, "lm_head", None)):
            continue
        for name, _ in layer.named_parameters(recurse=False):
            full = f"{prefix}.{name}" if prefix else name
            if full not in loaded or info.load_numel < (info.load_numel_total or 0) - _padding(layer):
                found.append(full)
    return found


def _padding(layer: Any) -> int:
    """Return the elements of rows that pad a vocabulary to a multiple of 64; nothing is ever loaded into them."""
    indices = getattr(layer, "shard_indices", None)
    if indices is None:
        return 0
    rows, width = layer.weight.shape
    return int(rows - indices.num_org_elements) * int(width)


def _is_tied(model: nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))


def refresh_tied_head(model: nn.Module) -> None:
    """Tie the head to the embedding again, and on CPU pack it again."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
    from vllm.platforms import current_platform

    if not _is_tied(model):
        return
    head: Any = model.lm_head
    head.weight = model.model.embed_tokens.weight  # type: ignore[union-attr]
    if current_platform.is_cpu():
        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
