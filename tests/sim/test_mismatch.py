"""Train–inference mismatch: actual bf16, bounded records, and the constant leak of truncation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import RangeError
from entr_lab.sim.logits import BaseLogits, entropy, seeded_generator
from entr_lab.sim.mismatch import (
    Mismatch,
    bf16_logits,
    record_error,
    routing_flips,
    top_p_log_probs,
    top_p_mask,
)


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """bfloat16 by bit arithmetic: the upper half of a float32, to nearest, ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


def test_bf16_is_the_format_bit_for_bit():
    """Against rounding by bit arithmetic, ties included."""
    logits = BaseLogits(vocab=256).draw(64, seeded_generator(2))
    ties = torch.tensor([[16.0625, 16.1875, -1.00390625, 0.0]], dtype=torch.float64)

    for values in (logits, ties):
        assert np.array_equal(bf16_logits(values).numpy(), round_to_bf16(values.numpy()))


def test_bf16_error_is_that_of_the_specification():
    """Logits near 20 err by up to 1/16; on a rare token δ is about 0.05."""
    logits = BaseLogits().draw(200, seeded_generator(3))

    error = bf16_logits(logits) - logits

    assert error.abs().max() <= 1 / 16
    near_top = error[logits > 16]
    assert near_top.std() == pytest.approx(1 / 8 / math.sqrt(12), rel=0.1)


def test_flips_hit_the_stated_share_and_leave_the_rest():
    """A tenth of the positions change, in every logit; the others not at all."""
    logits = BaseLogits(vocab=64).draw(5000, seeded_generator(4))

    flipped = routing_flips(logits, prob=0.1, scale=1.0, generator=seeded_generator(5)) != logits

    rows = flipped.any(-1)
    assert rows.double().mean() == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / 5000))
    assert flipped[rows].all()


def test_flips_have_a_heavy_tail():
    """Noise is N(0, 1)/√U: its second moment is E[1/U] = log(50)/0.98 at scale 1."""
    logits = torch.zeros(20_000, 16, dtype=torch.float64)

    noise = routing_flips(logits, prob=1.0, scale=0.5, generator=seeded_generator(6))

    per_position = noise.square().mean(-1)
    error = per_position.std() / math.sqrt(len(per_position))
    assert abs(per_position.mean() - 0.25 * math.log(50) / 0.98) < 5 * error


@given(st.floats(-80, 0), st.floats(0, 1), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_recorded_probability_is_a_probability(logp, scale, seed):
    """q_rec lies in (0, 1] for any q and any error."""
    recorded = record_error(torch.full((8,), logp).double(), scale=scale, generator=seeded_generator(seed))

    assert recorded.isfinite().all()
    assert (recorded <= 0).all()


def test_record_error_is_additive_in_probability():
    """The mean and variance of q_rec − q at q = ½, where nothing is clipped."""
    logp = torch.full((200_000,), 0.5, dtype=torch.float64).log()

    error = record_error(logp, scale=1e-3, generator=seeded_generator(8)).exp() - 0.5

    variance = (1e-3 * 0.5) ** 2 * math.log(50) / 0.98
    assert abs(error.mean()) < 5 * math.sqrt(variance / len(logp))
    assert error.var() == pytest.approx(variance, rel=0.05)


def test_certain_tokens_and_exact_records():
    """The error vanishes with 1 − q, and scale 0 records exactly, below 1e-6 too."""
    assert (record_error(torch.zeros(100).double(), scale=0.1, generator=seeded_generator(9)) == 0).all()
    logp = torch.tensor([-40.0, -1.0], dtype=torch.float64)
    assert torch.equal(record_error(logp, scale=0.0, generator=seeded_generator(9)), logp)


def test_which_mismatch_makes_large_log_ratios():
    """At q = 1e-5 bf16 noise leaves |δ| small; a record error of the same 1e-5 does not."""
    logits = torch.zeros(4000, 2, dtype=torch.float64)
    logits[:, 0] = 19.3
    logits[:, 1] = 19.3 + math.log(1e-5) + 0.1 * torch.rand(4000, generator=seeded_generator(1)).double()
    trainer = torch.log_softmax(logits, -1)[:, 1]
    bf16 = torch.log_softmax(bf16_logits(logits), -1)[:, 1] - trainer
    record = record_error(trainer, scale=1e-5, generator=seeded_generator(10)) - trainer

    assert bf16.abs().max() < 0.11
    assert record.abs().max() > 1.5


def naive_nucleus(probs: list[float], top_p: float) -> set[int]:
    """Take tokens from the likeliest down until their mass reaches top_p."""
    chosen, mass = set(), 0.0
    for token in sorted(range(len(probs)), key=lambda i: -probs[i]):
        if mass >= top_p:
            break
        chosen.add(token)
        mass += probs[token]
    return chosen


@given(st.integers(0, 10**6), st.floats(0.01, 0.999))
@settings(max_examples=60, deadline=None)
def test_nucleus_against_a_naive_loop(seed, top_p):
    """Same tokens, never none."""
    probs = torch.softmax(3 * torch.randn(4, 9, generator=seeded_generator(seed), dtype=torch.float64), -1)

    mask = top_p_mask(probs, top_p)

    for row, kept in zip(probs.tolist(), mask, strict=True):
        assert set(kept.nonzero().flatten().tolist()) == naive_nucleus(row, top_p)


def test_leak_is_the_log_of_the_kept_mass():
    """δ is one constant per position, equal to the log of a mass that is summed naively."""
    log_probs = torch.log_softmax(BaseLogits(vocab=64).draw(50, seeded_generator(12)), -1)

    truncated, log_mass = top_p_log_probs(log_probs, 0.9)

    for row, cut, mass in zip(log_probs, truncated, log_mass, strict=True):
        nucleus = naive_nucleus(row.exp().tolist(), 0.9)
        expected = math.log(math.fsum(math.exp(row[token]) for token in nucleus))
        assert mass.item() == pytest.approx(expected, abs=1e-12)
        for token in range(64):
            if token in nucleus:
                assert (row[token] - cut[token]).item() == pytest.approx(expected, abs=1e-12)
            else:
                assert cut[token] == -math.inf
    assert entropy(truncated).isfinite().all()


def test_engine_combines_its_parts():
    """Flips happen inside, the cast last; all off is the trainer itself."""
    logits = BaseLogits(vocab=64).draw(200, seeded_generator(13))
    off = Mismatch(bf16=False)
    both = Mismatch(bf16=True, flip_prob=1.0, flip_scale=0.5)

    assert torch.equal(off.engine_logits(logits, seeded_generator(0)), logits)
    assert torch.equal(off.recorded(logits[:, 0], seeded_generator(0)), logits[:, 0])
    flipped = routing_flips(logits, prob=1.0, scale=0.5, generator=seeded_generator(0))
    assert torch.equal(both.engine_logits(logits, seeded_generator(0)), bf16_logits(flipped))


@pytest.mark.parametrize("bad", [{"flip_prob": 1.5}, {"flip_scale": -1.0}, {"record": math.nan}])
def test_bad_settings_are_refused(bad):
    """Each names its field."""
    with pytest.raises(RangeError, match=next(iter(bad))):
        Mismatch(**bad)
    with pytest.raises(RangeError, match="top_p"):
        top_p_mask(torch.ones(1, 2) / 2, 0.0)
