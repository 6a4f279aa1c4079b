"""Moments of δ per position, and the table of low-entropy outliers."""

import math

import pytest
import torch

from entr_lab.sim.logits import BaseLogits, sample_tokens, seeded_generator
from entr_lab.sim.outliers import GROUPS, Moments, Positions

N, VOCAB = 30, 24


@pytest.fixture(scope="module")
def rows():
    generator = seeded_generator(41)
    log_probs = torch.log_softmax(BaseLogits(vocab=VOCAB).draw(N, generator), -1)
    return log_probs, 0.5 * torch.randn(N, VOCAB, generator=generator, dtype=torch.float64)


def test_moments_against_naive_loops(rows):
    """Every column, in plain Python."""
    log_probs, delta = rows

    found = Positions.at(log_probs).moments(delta)

    for i, (logs, row) in enumerate(zip(log_probs.tolist(), delta.tolist(), strict=True)):
        probs = [math.exp(x) for x in logs]
        best = max(range(VOCAB), key=lambda y: probs[y])
        expected = {
            "entropy": -math.fsum(p * x for p, x in zip(probs, logs, strict=True)),
            "square": math.fsum(p * d * d for p, d in zip(probs, row, strict=True)),
            "absolute": math.fsum(p * abs(d) for p, d in zip(probs, row, strict=True)),
            "dominant_prob": probs[best],
            "dominant_absolute": probs[best] * abs(row[best]),
        }
        for name, value in expected.items():
            assert getattr(found, name)[i].item() == pytest.approx(value, rel=1e-12), name


def test_moments_against_monte_carlo(rows):
    """E|δ| over positions and sampled tokens, within five standard errors."""
    log_probs, delta = rows
    exact = Positions.at(log_probs).moments(delta).absolute.mean()

    drawn = delta.abs().gather(-1, sample_tokens(log_probs.exp(), seeded_generator(42), draws=40_000))

    assert abs(drawn.mean() - exact) < 5 * drawn.mean(0).std() / math.sqrt(drawn.shape[1])


def test_outlier_cells_by_hand():
    """Three positions: a confident one, one between the groups, and a fair coin."""
    probs = torch.tensor([[0.99, 0.01], [0.95, 0.05], [0.5, 0.5]], dtype=torch.float64)
    delta = torch.tensor([[0.001, -0.4], [9.0, 9.0], [0.2, -0.1]], dtype=torch.float64)
    confident = -(0.99 * math.log(0.99) + 0.01 * math.log(0.01))

    found = Positions.at(probs.log()).moments(delta).outliers()

    dominant, rest, open_choice = (found[group] for group in GROUPS)
    assert (dominant.share, rest.share, open_choice.share) == pytest.approx((0.99 / 3, 0.01 / 3, 1 / 3))
    assert (dominant.mean_abs, rest.mean_abs, open_choice.mean_abs) == pytest.approx((0.001, 0.4, 0.15))
    assert dominant.mean_z == pytest.approx(0.001 / math.sqrt(confident))
    assert rest.mean_z == pytest.approx(0.4 / math.sqrt(confident))
    assert open_choice.mean_z == pytest.approx(0.15 / math.sqrt(math.log(2)))


def test_certain_positions_and_empty_groups():
    """A one-hot position has H = 0 and no outlier; a group without tokens has no mean."""
    log_probs = torch.tensor([[0.0, -math.inf]], dtype=torch.float64)

    found = Positions.at(log_probs).moments(torch.zeros(1, 2, dtype=torch.float64)).outliers()

    assert (found[GROUPS[0]].share, found[GROUPS[0]].mean_z) == (1.0, 0.0)
    assert found[GROUPS[1]].share == 0
    assert math.isnan(found[GROUPS[2]].mean_abs)


def test_chunks_make_no_difference(rows):
    """Filled in pieces or joined from pieces, the moments are those of the whole."""
    log_probs, delta = rows
    whole = Positions.at(log_probs).moments(delta)
    pieces = [Positions.at(log_probs[i : i + 7]).moments(delta[i : i + 7]) for i in range(0, N, 7)]
    filled = Moments.empty(N)
    for start, piece in zip(range(0, N, 7), pieces, strict=True):
        filled.fill(start, piece)

    for name in ("entropy", "square", "absolute", "dominant_prob", "dominant_absolute"):
        torch.testing.assert_close(getattr(filled, name), getattr(whole, name))
        assert torch.equal(getattr(Moments.concatenate(pieces), name), getattr(filled, name))
    assert whole.rms == pytest.approx(math.sqrt(whole.square.mean()))
