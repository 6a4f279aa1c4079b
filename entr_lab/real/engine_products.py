"""Matrix products of a bfloat16 engine on a CPU without bfloat16 instructions. Runs inside the engine.

There torch multiplies bfloat16 matrices element by element, at a twelfth of its float32 speed. Factors widened to
float32, multiplied, and rounded once at the end are what bfloat16 units compute: products accumulated in float32. Ours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["install", "wide_product"]


def wide_product(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, accumulated in float32 and rounded to the dtype of `x`.

    Args:
        layer: vLLM's; its own product is taken where its weight is packed away.
        x: `[..., D]`.
        weight: `[V, D]`.
        bias: `[V]` or None.
    """
    if x.dtype is torch.float32 or not weight.numel():
        own: Tensor = layer.cpu_linear(x, weight, bias)
        return own
    wide = None if bias is None else bias.float()
    return torch.nn.functional.linear(x.float(), weight.float(), wide).to(x.dtype)


def install() -> bool:
    """Put `wide_product` into vLLM where it is the faster one; return whether it is."""
    from vllm.model_executor.layers import utils
    from vllm.platforms import current_platform

    if not current_platform.is_cpu() or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    utils.cpu_unquantized_gemm = wide_product
    return True
