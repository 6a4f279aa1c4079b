"""Token batches from synthetic logits."""

import math

import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.sim.drift import make_drift
from entr_lab.sim.logits import BaseLogits, log_ratio_of_shift, seeded_generator
from entr_lab.sim.mismatch import Mismatch
from entr_lab.sim.outliers import Positions
from entr_lab.sim.synthetic import TokenSource, chunks

VOCAB = 64


def source(mismatch: Mismatch, scale: float = 0.02) -> TokenSource:
    return TokenSource(
        base=BaseLogits(vocab=VOCAB),
        drift=make_drift("feature", VOCAB, seeded_generator(50)),
        scale_per_version=scale,
        mismatch=mismatch,
        chunk=128,
    )


def test_chunks_cover_without_overlap():
    """Every position once, pieces no larger than asked."""
    assert chunks(10, 4) == [(0, 4), (4, 4), (8, 2)]
    assert chunks(3, 8) == [(0, 3)]
    with pytest.raises(RangeError, match="chunk"):
        chunks(3, 0)


def test_batches_of_several_lags_share_tokens_and_records():
    """Only the target moves, and the version that it is counted from."""
    ticks = []

    batches = source(Mismatch(record=1e-4)).draw(1000, [0, 5, 30], seeded_generator(51), lambda: ticks.append(1))

    assert len(ticks) == 8
    for lag, batch in batches.items():
        assert batch.n_tokens == 1000
        assert (batch.staleness == lag).all()
        for name in ("logp_mu", "entropy_mu", "advantage", "sequence", "group"):
            assert torch.equal(getattr(batch, name), getattr(batches[0], name))
    sizes = [batches[lag].log_ratio.abs().mean() for lag in (0, 5, 30)]
    assert sizes == sorted(sizes)


def test_without_mismatch_and_lag_target_and_behaviour_agree():
    """δ is zero bit for bit, so no rule drops anything."""
    batch = source(Mismatch(bf16=False)).draw(500, [0], seeded_generator(52))[0]

    assert (batch.log_ratio == 0).all()


def test_sampled_moments_are_the_exact_ones():
    """Mean δ² and H over sampled tokens against enumeration on other positions of the same source."""
    lagged = source(Mismatch(bf16=False)).draw(40_000, [20], seeded_generator(53))[20]
    generator = seeded_generator(54)
    logits = BaseLogits(vocab=VOCAB).draw(40_000, generator)
    here = Positions.at(torch.log_softmax(logits, -1))
    drift = make_drift("feature", VOCAB, seeded_generator(50))
    exact = here.moments(log_ratio_of_shift(here.probs, 0.4 * drift.direction(logits, generator)))

    for drawn, expected in ((lagged.log_ratio.square(), exact.square), (lagged.entropy_mu, exact.entropy)):
        error = math.hypot(drawn.std(), expected.std()) / math.sqrt(40_000)
        assert abs(drawn.mean() - expected.mean()) < 5 * error


def test_advantage_belongs_to_the_trajectory():
    """±1, constant along a sequence of 64 tokens, both signs about equally often; groups hold 8 sequences."""
    batch = source(Mismatch()).draw(64 * 400, [0], seeded_generator(55))[0]

    per_sequence = batch.advantage.view(400, 64)
    assert (per_sequence == per_sequence[:, :1]).all()
    assert set(per_sequence.unique().tolist()) == {-1.0, 1.0}
    assert abs(per_sequence[:, 0].mean()) < 5 / math.sqrt(400)
    assert torch.bincount(batch.group).tolist() == [512] * 50


def test_numbers_depend_on_the_generator_alone():
    """Same generator, same batch."""
    first, again = (source(Mismatch(record=1e-3)).draw(300, [7], seeded_generator(56))[7] for _ in range(2))

    assert torch.equal(first.logp_mu, again.logp_mu)
    assert torch.equal(first.logp_pi, again.logp_pi)
