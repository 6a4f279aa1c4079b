"""Drift models: what each shares between positions, how it grows with lag, and its scale."""

import math

import pytest
import torch

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.sim.drift import DRIFTS, lag_scale, make_drift, scale_for_rms
from entr_lab.sim.logits import BaseLogits, log_ratio_of_shift, seeded_generator

VOCAB = 128


@pytest.fixture(scope="module")
def logits():
    return BaseLogits(vocab=VOCAB).draw(300, seeded_generator(11))


def direction(name, logits, seed=0):
    generator = seeded_generator(seed)
    return make_drift(name, VOCAB, generator).direction(logits, generator)


@pytest.mark.parametrize(("name", "rank"), [("iid", VOCAB), ("feature", 48), ("rank1", 1)])
def test_rank_of_what_positions_share(name, rank, logits):
    """Shared weights confine all positions to a subspace; independent noise does not."""
    found = direction(name, logits)

    assert found.dtype == torch.float64
    assert found.shape == logits.shape
    assert torch.linalg.matrix_rank(found) == rank


@pytest.mark.parametrize("name", ["iid", "feature", "rank1"])
def test_random_directions_have_unit_size(name, logits):
    """So that scales of different models compare; rank one has one row and few effective numbers."""
    assert direction(name, logits).std() == pytest.approx(1.0, rel=0.25)


def test_weights_are_shared_between_calls():
    """Two chunks of one run see the same W: their directions span one subspace of 48 dimensions."""
    generator = seeded_generator(5)
    drift = make_drift("feature", VOCAB, generator)
    chunk = torch.zeros(100, VOCAB, dtype=torch.float64)

    both = torch.cat([drift.direction(chunk, generator), drift.direction(chunk, generator)])

    assert torch.linalg.matrix_rank(both) == 48


def test_local_gradient_is_a_sum_of_score_functions(logits):
    """Rows sum to zero, and every token that was never sampled moves in proportion to its probability."""
    found = direction("local-gradient", logits)
    probs = torch.softmax(logits, -1)

    assert found.sum(-1).abs().max() < 1e-12
    ratio = (found / probs).sort(-1).values
    untouched = ratio[:, 40:88].std(-1) / ratio[:, 40:88].mean(-1).abs()  # at most 30 of 128 tokens were sampled
    assert untouched.max() < 1e-9


def test_temperature_sharpens(logits):
    """The best token stays where it is and all others fall in proportion to their distance."""
    found = direction("temperature", logits)

    torch.testing.assert_close(found, logits - logits.max(-1, keepdim=True).values)


def test_growth_with_lag():
    """Ballistic by default; power ½ for the size of a random walk."""
    assert lag_scale(0.01, 30) == pytest.approx(0.3)
    assert lag_scale(0.01, 0) == 0
    assert lag_scale(0.01, 9, power=0.5) == pytest.approx(0.03)
    with pytest.raises(RangeError, match="lag"):
        lag_scale(0.01, -1)


@pytest.mark.parametrize("name", sorted(DRIFTS))
@pytest.mark.parametrize("target", [0.01, 0.1, 0.6])
def test_scale_reaches_the_target(name, target, logits):
    """RMS by the difference of log-softmax, a route that the search does not take."""
    found = direction(name, logits)
    probs = torch.softmax(logits, -1)

    shift = scale_for_rms(probs, found, target) * found

    delta = torch.log_softmax(logits + shift, -1) - torch.log_softmax(logits, -1)
    assert math.sqrt((probs * delta**2).sum(-1).mean()) == pytest.approx(target, rel=2.1e-3)


def test_unreachable_targets_are_refused(logits):
    """A direction that moves all logits alike has δ = 0; no finite scale gives 1e200 nats."""
    probs = torch.softmax(logits, -1)
    with pytest.raises(ConfigError, match="another model"):
        scale_for_rms(probs, torch.zeros_like(logits), 0.1)
    with pytest.raises(ConfigError, match="smaller"):
        scale_for_rms(probs, direction("iid", logits), 1e200)
    with pytest.raises(RangeError, match="target_rms"):
        scale_for_rms(probs, direction("iid", logits), 0.0)


def test_unknown_model_is_refused():
    """With the nearest name."""
    with pytest.raises(UnknownNameError, match="feature"):
        make_drift("features", VOCAB, seeded_generator(0))


def test_first_order_law(logits):
    """At a small scale E[δ²] = scale² Var_μ(D) at every position."""
    probs, found = torch.softmax(logits, -1), direction("iid", logits)
    mean = (probs * found).sum(-1, keepdim=True)

    square = (probs * log_ratio_of_shift(probs, 1e-4 * found) ** 2).sum(-1)

    torch.testing.assert_close(square, 1e-8 * (probs * (found - mean) ** 2).sum(-1), rtol=1e-2, atol=0)
