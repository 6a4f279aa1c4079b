from __future__ import annotations

import pickle

import pytest

from entr_lab.errors import ConfigError, RangeError
from entr_lab.real.records import SamplingSpec


def test_the_default_samples_the_whole_distribution() -> None:
    spec = SamplingSpec()
    assert (spec.temperature, spec.top_p, spec.top_k, spec.seed) == (1.0, 1.0, 0, None)
    assert pickle.loads(pickle.dumps(spec)) == spec  # it crosses processes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("max_tokens", 0),
    ],
)
def test_numbers_outside_their_interval_are_named(field: str, value: float) -> None:
    with pytest.raises(RangeError, match=field):
        SamplingSpec(**{field: value})


def test_a_negative_stop_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="stop_token_ids must be vocabulary ids"):
        SamplingSpec(stop_token_ids=(3, -1))
