from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from entr_lab.errors import EngineError
from entr_lab.real.canary import model_logits
from entr_lab.real.records import Completion, SamplingSpec
from entr_lab.real.self_check import CHECK_SAMPLING, check_behaviour, perturbed, processed_logp, recompute
from tests.real.fakes import ToyModel

VOCABULARY = 40
PROMPTS = [[1, 2, 3], [4, 5, 6, 7]]


def sharp_model() -> ToyModel:
    model = ToyModel(VOCABULARY, seed=3)
    with torch.no_grad():
        model.lm_head.weight.mul_(8)
    return model


class Engine:
    """Samples one token at a time in float64 by its own arithmetic, and reports what `report` makes of it."""

    def __init__(self, model, report="processed", dtype="float32", noise=0.0) -> None:
        self.logits = model_logits(model)
        self.report = report
        self.noise = noise
        self.settings = SimpleNamespace(dtype=dtype)
        self.random = np.random.default_rng(0)

    async def generate(self, prompt_ids, sampling: SamplingSpec, n: int = 1) -> list[Completion]:
        ids = list(prompt_ids)
        rows = []
        for _ in range(sampling.max_tokens):
            logits = self.logits(ids)[-1].double().numpy() + self.noise * self.random.standard_normal(VOCABULARY)
            drawn = truncated(logits / sampling.temperature, sampling.top_p)
            token = int(self.random.choice(VOCABULARY, p=drawn))
            told = drawn if self.report == "processed" else truncated(logits, 1.0)
            positive = told[told > 0]
            rows.append((token, np.log(told[token]), -(positive * np.log(positive)).sum(), (told**2).sum()))
            if self.report == "nan":
                rows[-1] = (token, np.nan, np.nan, np.nan)
            ids.append(token)
        token, logp, entropy, collision = (np.array(column) for column in zip(*rows, strict=True))
        return [Completion(token.astype(np.int32), logp, entropy, collision, np.zeros(len(rows), dtype=np.int64), "")]


def truncated(scaled: np.ndarray, top_p: float) -> np.ndarray:
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    kept, mass = [], 0.0
    for token in sorted(range(len(p)), key=lambda token: -p[token]):
        kept.append(token)
        mass += p[token]
        if mass >= top_p:
            break
    result = np.zeros_like(p)
    result[kept] = p[kept] / p[kept].sum()
    return result


def check(engine: Engine, model: ToyModel):
    return asyncio.run(check_behaviour(engine, model_logits(model), PROMPTS))


def test_an_engine_that_reports_what_it_drew_from_passes() -> None:
    model = sharp_model()
    found = check(Engine(model), model)
    assert found.tokens == 2 * CHECK_SAMPLING.max_tokens
    assert found.worst < 1e-4


def test_an_engine_that_reports_before_temperature_and_truncation_is_refused() -> None:
    model = sharp_model()
    with pytest.raises(EngineError, match=r"is wrong.*temperature 1.4, top_p 0.9; worst at token"):
        check(Engine(model, "raw"), model)


def test_an_engine_with_other_weights_is_refused() -> None:
    with pytest.raises(EngineError, match="record of its sampling is wrong"):
        check(Engine(sharp_model()), ToyModel(VOCABULARY, seed=4))


def test_nan_cannot_hide_in_the_mean() -> None:
    model = sharp_model()
    with pytest.raises(EngineError, match="differ from the trainer's by inf"):
        check(Engine(model, "nan"), model)


def test_the_noise_of_a_bfloat16_engine_passes_as_such_and_fails_as_float32() -> None:
    model = sharp_model()
    assert check(Engine(model, dtype="bfloat16", noise=0.01), model).logp < 0.05
    with pytest.raises(EngineError, match="record of its sampling is wrong"):
        check(Engine(model, noise=0.01), model)


@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.3, 1e-6])
@pytest.mark.parametrize("top_k", [0, 1, 5])
def test_processed_logp_keeps_the_likeliest_tokens(top_p: float, top_k: int) -> None:
    logits = torch.randn(30, generator=torch.Generator().manual_seed(0)) * 2
    sampling = SamplingSpec(temperature=0.7, top_p=top_p, top_k=top_k)
    found = processed_logp(logits, sampling)
    scaled = logits.double().numpy() / 0.7
    if top_k:
        scaled[np.argsort(-scaled)[top_k:]] = -np.inf
    want = truncated(scaled, top_p)
    np.testing.assert_allclose(found.exp(), want, atol=1e-12)


def test_recompute_allows_both_sides_of_the_edge_and_nothing_else() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    sampling = SamplingSpec(top_p=0.8)
    for size in (2, 3):  # the mass of two tokens is top_p: rounding decides
        logp = processed_logp(logits, sampling, size)
        p = logp.exp()
        engine = (float(logp[0]), float(torch.special.entr(p).sum()), float((p * p).sum()))
        assert recompute(logits, 0, engine, sampling, 1e-5).max() < 1e-12
    logp = processed_logp(logits, sampling, 1)
    assert recompute(logits, 0, (0.0, 0.0, 1.0), sampling, 1e-5).max() > 0.1


def test_perturbed_weights_differ_everywhere_and_stay_tied() -> None:
    tied = torch.ones(5, 4)
    made = perturbed({"a": tied, "b": torch.full((3,), 2.0).bfloat16(), "c": tied})
    assert made["a"] is made["c"]
    assert (made["a"] != 1).all()
    assert made["b"].dtype == torch.bfloat16
    assert torch.equal(tied, torch.ones(5, 4))
