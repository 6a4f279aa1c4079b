from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.real.canary import CanaryReference, canary_reference, model_logits
from entr_lab.real.proof import prove
from entr_lab.real.records import Completion
from tests.real.fakes import ToyModel

PROMPTS = [[1, 2, 3], [4, 5]]


@pytest.fixture
def reference() -> CanaryReference:
    return canary_reference(model_logits(ToyModel(vocabulary=30)), PROMPTS)


def answer(reference: CanaryReference, place: int, rank: int = 0, version: int = 7, **changes: float) -> Completion:
    numbers = {
        "logp_mu": reference.top_logp[place, rank],
        "entropy_mu": reference.entropy[place],
        "collision_mu": reference.collision[place],
    } | changes
    return Completion(
        np.array([reference.top_ids[place, rank]], dtype=np.int32),
        *(np.array([number], dtype=np.float32) for number in numbers.values()),
        np.array([version]),
        "length",
    )


def test_equal_numbers_pass(reference: CanaryReference) -> None:
    proof = prove(reference, [answer(reference, 0), answer(reference, 1)], 7, 1e-3)
    assert proof.worst == 0.0
    assert proof.version == 7


def test_another_likely_token_passes_by_its_own_log_prob(reference: CanaryReference) -> None:
    assert prove(reference, [answer(reference, 0, rank=3), answer(reference, 1)], 7, 1e-3).worst == 0.0


@pytest.mark.parametrize("column", ["logp_mu", "entropy_mu", "collision_mu"])
def test_each_number_is_held_against_the_tolerance(reference: CanaryReference, column: str) -> None:
    good = answer(reference, 0)
    right = float(getattr(good, column)[0])
    near = answer(reference, 1, **{column: float(getattr(answer(reference, 1), column)[0]) + 9e-4})
    assert prove(reference, [good, near], 7, 1e-3).worst == pytest.approx(9e-4, rel=1e-2)
    far = answer(reference, 0, **{column: right + 1.1e-3})
    with pytest.raises(EngineError, match=r"canary 0 \(prompt of 3 tokens\), token \d+: .* under weights 7"):
        prove(reference, [far, answer(reference, 1)], 7, 1e-3)


@pytest.mark.parametrize("column", ["logp_mu", "entropy_mu", "collision_mu"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_fails_at_any_tolerance(reference: CanaryReference, column: str, bad: float) -> None:
    with pytest.raises(EngineError, match="NaN"):
        prove(reference, [answer(reference, 0), answer(reference, 1, **{column: bad})], 7, 1e9)


def test_a_token_that_the_trainer_finds_unlikely_fails(reference: CanaryReference) -> None:
    unlikely = next(token for token in range(30) if token not in reference.top_ids[0])
    wrong = replace(answer(reference, 0), token_ids=np.array([unlikely], dtype=np.int32))
    with pytest.raises(EngineError, match="not among the trainer's 16"):
        prove(reference, [wrong, answer(reference, 1)], 7, 1e9)


def test_tokens_of_the_version_before_fail(reference: CanaryReference) -> None:
    with pytest.raises(EngineError, match="produced by weights 6 after an update to 7"):
        prove(reference, [answer(reference, 0, version=6), answer(reference, 1)], 7, 1e-3)
