"""Base logits, and the exact expectations that everything in the open loop rests on."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.sim.logits import BaseLogits, entropy, log_ratio_of_shift, sample_tokens, seeded_generator


def profile(base: BaseLogits, seed: int, positions: int = 12_288) -> torch.Tensor:
    generator = seeded_generator(seed)
    chunks = [base.draw(512, generator) for _ in range(positions // 512)]
    return torch.cat([entropy(torch.log_softmax(chunk, -1)) for chunk in chunks])


def naive_log_ratio(probs: list[float], shift: list[float]) -> list[float]:
    """log π − log μ through the target's own normaliser, in plain Python."""
    unnormalised = [p * math.exp(s) for p, s in zip(probs, shift, strict=True)]
    total = math.fsum(unnormalised)
    return [math.log(u / total) - math.log(p) for u, p in zip(unnormalised, probs, strict=True)]


def test_entropy_profile_is_that_of_a_language_model():
    """Quantiles of the specification, on a seed that it did not use."""
    h = profile(BaseLogits(), 4711)

    quantiles = h.quantile(torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9, 0.99], dtype=h.dtype))
    expected = torch.tensor([0.005, 0.020, 0.090, 0.69, 1.48, 1.84], dtype=h.dtype)

    torch.testing.assert_close(quantiles, expected, rtol=0.15, atol=0)
    assert 0.40 < h.mean() < 0.44
    assert 0.50 < (h < 0.1).double().mean() < 0.54


def test_temperature_raises_the_entropy():
    """1.4 takes the mean from 0.42 to 0.95 nats."""
    assert 0.90 < profile(BaseLogits(temperature=1.4), 4712).mean() < 1.0


def test_largest_logit_is_near_its_level():
    """It differs from position to position, so that it is no grid point of bf16 by construction."""
    top = BaseLogits(top_logit=20.0).draw(400, seeded_generator(1)).amax(-1)

    assert top.min() >= 19
    assert top.max() <= 21
    assert top.std() > 0.4


def test_candidates_are_distinct_and_uniform():
    """Floyd's method: each id is equally likely to be a candidate, and to be the best one."""
    base, n = BaseLogits(vocab=11, candidates=8), 20_000
    ids = base._candidate_ids(n, seeded_generator(3))

    assert all(len(set(row)) == 8 for row in ids[:500].tolist())
    for column, expected in ((ids, n * 8 / 11), (ids[:, :1], n / 11)):
        counts = torch.bincount(column.flatten(), minlength=11).double()
        assert (counts - expected).abs().max() < 5 * math.sqrt(expected)


@given(st.lists(st.floats(-30, 0), min_size=2, max_size=12), st.floats(1e-6, 3), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_log_ratio_of_shift_is_the_difference_of_log_probabilities(logits, size, seed):
    """Against plain Python, and against E_μ[e^δ] = 1."""
    probs = torch.softmax(torch.tensor(logits, dtype=torch.float64), -1)
    shift = size * torch.randn(len(logits), generator=seeded_generator(seed), dtype=torch.float64)

    delta = log_ratio_of_shift(probs, shift)

    naive = torch.tensor(naive_log_ratio(probs.tolist(), shift.tolist()), dtype=torch.float64)
    torch.testing.assert_close(delta, naive, rtol=0, atol=1e-12)
    assert (probs * delta.exp()).sum().item() == pytest.approx(1.0, abs=1e-12)


def test_log_ratio_of_shift_keeps_its_accuracy_where_differences_lose_it():
    """A shift of 1e-14 on a token of probability ½ gives δ = ±½e-14; the difference of logs cannot see it."""
    probs = torch.tensor([0.5, 0.5], dtype=torch.float64)

    delta = log_ratio_of_shift(probs, torch.tensor([1e-14, 0.0], dtype=torch.float64))

    torch.testing.assert_close(delta, torch.tensor([0.5e-14, -0.5e-14], dtype=torch.float64), rtol=1e-9, atol=0)


def test_enumeration_agrees_with_monte_carlo():
    """E_μ[δ²] as a sum over the vocabulary and as a mean over sampled tokens."""
    generator = seeded_generator(21)
    logits = BaseLogits(vocab=64).draw(16, generator)
    probs = torch.softmax(logits, -1)
    square = log_ratio_of_shift(probs, 0.3 * torch.randn(16, 64, generator=generator, dtype=torch.float64)).square()
    exact = (probs * square).sum(-1).mean()

    drawn = square.gather(-1, sample_tokens(probs, generator, draws=40_000))

    error = drawn.mean(0).std() / math.sqrt(drawn.shape[1])
    assert abs(drawn.mean() - exact) < 5 * error


def test_sampled_frequencies_are_the_probabilities():
    """Chi-square over five tokens, one of them impossible."""
    probs = torch.tensor([[0.5, 0.0, 0.3, 0.15, 0.05]], dtype=torch.float64)
    n = 50_000

    counts = torch.bincount(sample_tokens(probs, seeded_generator(5), draws=n)[0], minlength=5).double()

    assert counts[1] == 0
    expected = n * probs[0, [0, 2, 3, 4]]
    assert ((counts[[0, 2, 3, 4]] - expected) ** 2 / expected).sum() < 21.1  # 0.9999 quantile, 3 degrees


def test_entropy_at_the_extremes():
    """One-hot is 0, uniform is log V, and impossible tokens add nothing."""
    rows = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25] * 4, [0.5, 0.5, 0.0, 0.0]], dtype=torch.float64).log()

    expected = torch.tensor([0.0, math.log(4), math.log(2)], dtype=torch.float64)

    torch.testing.assert_close(entropy(rows), expected, rtol=0, atol=1e-15)


def test_streams_are_reproducible_and_distinct():
    """Same seed and stream: same numbers; another stream: others."""
    first, again, other = (torch.rand(4, generator=seeded_generator(7, stream)) for stream in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    "bad", [{"vocab": 8}, {"candidates": 1}, {"open_share": 1.5}, {"temperature": 0.0}, {"tail_sd": math.nan}]
)
def test_bad_settings_are_refused(bad):
    """Each names its field."""
    with pytest.raises(RangeError, match=next(iter(bad))):
        BaseLogits(**bad)
