"""The hook in a running engine against a recomputation, and what it does with NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entr_lab.real.behaviour import COLUMNS
from entr_lab.real.canary import model_logits
from entr_lab.real.records import SamplingSpec
from entr_lab.real.self_check import check_behaviour, processed_logp
from tests.real.engines import PROMPTS, LiveEngine

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]


def test_other_requests_get_vllms_own_log_probs() -> None:
    pytest.importorskip("vllm")
    from entr_lab.real import engine_hook

    logp = torch.randn(4, 20, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    stock = engine_hook._stock_gather(logp, 5, logp.argmax(-1))
    found = engine_hook.gather_behaviour(logp, 5, logp.argmax(-1))
    assert torch.equal(found.logprobs, stock.logprobs)
    assert found.logprob_token_ids.shape == (4, 6)
    hooked = engine_hook.gather_behaviour(logp, COLUMNS, logp.argmax(-1))
    assert hooked.logprob_token_ids[:, 1:].tolist() == [[-1, -2, -3]] * 4


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSpec(max_tokens=20),
        SamplingSpec(temperature=1.4, top_p=0.9, max_tokens=20),
        SamplingSpec(temperature=0.6, top_k=5, max_tokens=20),
        SamplingSpec(temperature=0.8, top_p=0.7, top_k=12, max_tokens=20),
    ],
    ids=str,
)
def test_the_record_is_that_of_the_distribution_sampled_from(live: LiveEngine, sampling: SamplingSpec) -> None:
    found = live.run(check_behaviour(live.generator, model_logits(live.model), [*PROMPTS, [1, 2, 3]], sampling))
    assert found.tokens == 60
    assert found.worst < 1e-4


def test_the_same_comparison_tells_raw_from_processed(live: LiveEngine) -> None:
    sampling = SamplingSpec(temperature=1.4, top_p=0.9, max_tokens=20)
    (completion,) = live.run(live.generator.generate([1, 2, 3], sampling))
    rows = model_logits(live.model)([1, 2, 3, *completion.token_ids.tolist()])[2:-1]
    raw = torch.stack([processed_logp(row, SamplingSpec()) for row in rows])
    wrong = raw.gather(-1, torch.from_numpy(completion.token_ids).long()[:, None])[:, 0].numpy()
    assert np.abs(wrong - completion.logp_mu).mean() > 0.05


def test_nan_log_probs_are_passed_on(live: LiveEngine) -> None:
    weight = live.model.model.norm.weight
    saved = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[0] = torch.nan
        live.push(canary=False)
        (completion,) = live.run(live.generator.generate([1, 2, 3], SamplingSpec(max_tokens=4)))
        assert np.isnan(completion.logp_mu).all()
        assert np.isnan(completion.entropy_mu).all()
        assert completion.weight_version.tolist() == [live.version] * 4
    finally:
        with torch.no_grad():
            weight.copy_(saved)
        live.push()
