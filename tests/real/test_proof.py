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


def off(reference: CanaryReference, place: int, column: str, by: float) -> Completion:
    """Return an answer of which one number is off."""
    right = float(getattr(answer(reference, place), column)[0])
    return answer(reference, place, **{column: right + by})


COLUMNS = ["logp_mu", "entropy_mu", "collision_mu"]


@pytest.mark.parametrize("column", COLUMNS)
def test_each_number_of_each_canary_is_held_against_ten_times_the_tolerance(
    reference: CanaryReference, column: str
) -> None:
    near = off(reference, 1, column, 9e-4)
    assert prove(reference, [answer(reference, 0), near], 7, 1e-4).worst == pytest.approx(9e-4, rel=1e-2)
    far = off(reference, 0, column, 1.1e-3)
    with pytest.raises(EngineError, match=r"canary 0 \(prompt of 3 tokens\), token \d+: .* under weights 7"):
        prove(reference, [far, answer(reference, 1)], 7, 1e-4)


@pytest.mark.parametrize("column", COLUMNS)
def test_the_mean_without_the_worst_is_held_against_the_tolerance(column: str) -> None:
    """One canary that rounding hits hard is no wrong engine; several that are a little off are one."""
    reference = canary_reference(model_logits(ToyModel(vocabulary=30)), [[1, 2, 3], [4, 5], [6], [7, 8]])
    one = [off(reference, place, column, 5e-3 if place == 2 else 5e-4) for place in range(4)]
    found = prove(reference, one, 7, 1e-3)
    assert found.typical == pytest.approx(5e-4, rel=1e-2)
    assert found.worst == pytest.approx(5e-3, rel=1e-2)
    several = [off(reference, place, column, 1.1e-3) for place in range(4)]
    with pytest.raises(EngineError, match=r"canary \d .* the other canaries differ by 0\.0011 on average"):
        prove(reference, several, 7, 1e-3)


def test_a_single_canary_has_no_one_to_hide_behind() -> None:
    reference = canary_reference(model_logits(ToyModel(vocabulary=30)), [[1, 2, 3]])
    assert prove(reference, [answer(reference, 0)], 7, 1e-3).typical == 0.0
    with pytest.raises(EngineError, match="canary 0"):
        prove(reference, [off(reference, 0, "entropy_mu", 2e-3)], 7, 1e-3)


@pytest.mark.parametrize("column", ["logp_mu", "entropy_mu", "collision_mu"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_fails_at_any_tolerance(reference: CanaryReference, column: str, bad: float) -> None:
    with pytest.raises(EngineError, match="NaN"):
        prove(reference, [answer(reference, 0), answer(reference, 1, **{column: bad})], 7, 1e9)


def test_a_trainer_without_a_number_proves_nothing(reference: CanaryReference) -> None:
    entropy = np.array([reference.entropy[0], np.nan], dtype=np.float32)
    broken = replace(reference, entropy=entropy)
    with pytest.raises(EngineError, match=r"canary 1 .* entropy .* nan in the trainer"):
        prove(broken, [answer(reference, 0), answer(reference, 1)], 7, 1e9)


def test_a_token_that_the_trainer_finds_unlikely_fails(reference: CanaryReference) -> None:
    unlikely = next(token for token in range(30) if token not in reference.top_ids[0])
    wrong = replace(answer(reference, 0), token_ids=np.array([unlikely], dtype=np.int32))
    with pytest.raises(EngineError, match="not among the trainer's 16"):
        prove(reference, [wrong, answer(reference, 1)], 7, 1e9)


def test_tokens_of_the_version_before_fail(reference: CanaryReference) -> None:
    with pytest.raises(EngineError, match="produced by weights 6 after an update to 7"):
        prove(reference, [answer(reference, 0, version=6), answer(reference, 1)], 7, 1e-3)
