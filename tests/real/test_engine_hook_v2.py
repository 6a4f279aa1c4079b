"""The GPU hook's tensors on a CPU; the runner that calls it was not run."""

from __future__ import annotations

import pytest
import torch

from entr_lab.real.behaviour import COLUMNS, behaviour_columns
from entr_lab.real.engine_hook_v2 import install, make_scores, scores_from_logits


def logits(rows: int = 150, vocabulary: int = 11) -> torch.Tensor:
    made = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0)) * 3
    made[::2, 3:5] = -torch.inf  # what top-k and top-p leave behind
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_from_logits_are_those_of_the_first_runner(dtype: torch.dtype) -> None:
    made = logits().to(dtype)
    tokens = made.argmax(-1)
    ids, values = scores_from_logits(made, tokens[:, None], 7)
    same_ids, same_values = behaviour_columns(made.float().log_softmax(-1), tokens, 7)
    assert torch.equal(ids, same_ids)
    torch.testing.assert_close(values, same_values, rtol=0, atol=0)
    assert values.dtype == torch.float32


def test_other_numbers_of_log_probs_go_to_the_stock_function() -> None:
    calls = []

    def stock(*arguments, **options):
        calls.append((arguments[1], options))
        return "stock"

    scores = make_scores(stock, lambda *columns, **options: (columns, options), lambda: 7)
    made = logits(4)
    assert scores(made, 5, made.argmax(-1), None, logits_mode=False) == "stock"
    assert scores(made, COLUMNS, made.argmax(-1), torch.tensor([0, 4])) == "stock"
    assert calls == [(5, {"logits_mode": False}), (COLUMNS, {})]


def test_the_hook_returns_the_runners_container() -> None:
    version = [3]
    scores = make_scores(pytest.fail, lambda *columns, **options: (columns, options), lambda: version[0])
    made = logits(4)
    version[0] = 8
    (ids, values, ranks), options = scores(
        made, COLUMNS, made.argmax(-1), None, logprob_token_ids_state=None, max_per_req_token_ids=0, logits_mode=False
    )
    assert ids.dtype == torch.int64
    assert ids.shape == values.shape == (4, COLUMNS + 1)
    assert ranks.shape == (4,)
    assert values[:, 3].tolist() == [8.0] * 4
    assert options == {"cu_num_generated_tokens": None}


@pytest.mark.real
@pytest.mark.filterwarnings("ignore")
def test_install_replaces_the_function_that_the_sampler_looks_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    import inspect

    from vllm.v1.outputs import LogprobsTensors
    from vllm.v1.worker.gpu.sample import sampler

    stock = sampler.compute_topk_scores
    assert list(inspect.signature(stock).parameters)[:4] == [
        "logits",
        "num_logprobs",
        "sampled_token_ids",
        "cu_num_logits",
    ]
    assert "compute_topk_scores(" in inspect.getsource(sampler.Sampler.__call__)
    monkeypatch.setattr(sampler, "compute_topk_scores", stock)
    install(lambda: 5)
    made = logits(4)
    found = sampler.compute_topk_scores(made, COLUMNS, made.argmax(-1), None, logits_mode=False)
    assert isinstance(found, LogprobsTensors)
    assert found.tolists().logprobs[:, 3].tolist() == [5.0] * 4
