"""Products in float32 of bfloat16 factors: as exact as a single rounding, and put in only where they are faster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from entr_lab.real import engine_products
from entr_lab.real.engine_products import wide_product


@pytest.mark.parametrize("with_bias", [False, True])
def test_the_product_is_rounded_once(with_bias: bool) -> None:
    """It is the float64 product of the same factors up to one rounding to bfloat16."""
    torch.manual_seed(0)
    x, weight = torch.randn(7, 96).bfloat16(), torch.randn(40, 96).bfloat16()
    bias = torch.randn(40).bfloat16() if with_bias else None
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())

    found = wide_product(None, x, weight, bias)

    assert found.dtype is torch.bfloat16
    # Half a unit in the last of 8 binary places, and float32's own error where terms cancel.
    assert ((found.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-5).all()


def test_other_layers_keep_their_own_product() -> None:
    layer = SimpleNamespace(cpu_linear=lambda x, weight, bias: "own")
    assert wide_product(layer, torch.zeros(1, 2), torch.zeros(3, 2)) == "own"
    assert wide_product(layer, torch.zeros(1, 2).bfloat16(), torch.zeros(0)) == "own"


def test_it_is_put_in_where_the_cpu_has_no_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("vllm.model_executor.layers.utils")
    supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    monkeypatch.setattr(utils, "cpu_unquantized_gemm", utils.cpu_unquantized_gemm)
    assert engine_products.install() is not supported
    assert (utils.cpu_unquantized_gemm is wide_product) is not supported
