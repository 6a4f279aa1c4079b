"""Sequences against a recursion over strings of tokens, and the four bounds on random trees."""

import itertools
import math

import numpy as np
import pytest

from entr_lab.errors import ShapeError
from entr_lab.theory.dispersion import entropy
from entr_lab.theory.divergence import log_ratio, normalise
from entr_lab.theory.sequences import accepted_budget, log_prefix, sequence_kl, surrogate_bounds, surrogate_error


def random_pair(seed, V=3, T=4, drift=0.5):
    rng = np.random.default_rng(seed)
    mu = [normalise(1.5 * rng.standard_normal((V**t, V))) for t in range(T)]
    pi = [normalise(a + drift * rng.standard_normal(a.shape)) for a in mu]
    return mu, pi, rng.random(V**T)


def walk(mu, pi):
    """Every trajectory as (μ probability, π probability, list of step ratios), by nested indexing."""
    V, T = mu[0].shape[1], len(mu)
    for path in itertools.product(range(V), repeat=T):
        row, p, q, ratios = 0, 1.0, 1.0, []
        for t, y in enumerate(path):
            a, b = math.exp(mu[t][row, y]), math.exp(pi[t][row, y])
            p, q, row = p * a, q * b, row * V + y
            ratios.append(b / a)
        yield p, q, ratios


@pytest.mark.parametrize("seed", range(5))
def test_chain_rule_and_error_match_a_walk(seed):
    mu, pi, reward = random_pair(seed)
    paths = list(walk(mu, pi))
    whole, steps = sequence_kl(mu, pi)
    assert whole == pytest.approx(sum(p * math.log(p / q) for p, q, _ in paths), rel=1e-10)
    assert steps.sum() == pytest.approx(whole, rel=1e-10)
    np.testing.assert_allclose(np.exp(log_prefix(mu)[-1]), [p for p, _, _ in paths], rtol=1e-10)
    want = sum((q - p) * r - p * r * sum(x - 1 for x in xs) for (p, q, xs), r in zip(paths, reward, strict=True))
    assert surrogate_error(mu, pi, reward) == pytest.approx(want, rel=1e-8, abs=1e-13)


@pytest.mark.parametrize("drift", [1e-3, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("masked", [False, True])
def test_every_bound_holds_with_and_without_a_mask(drift, masked):
    for seed in range(20):
        mu, pi, reward = random_pair(seed, V=2 + seed % 2, T=2 + seed % 4, drift=drift)
        keep = [np.abs(log_ratio(a, b)) <= drift for a, b in zip(mu, pi, strict=True)] if masked else None
        error = abs(surrogate_error(mu, pi, reward, keep))
        bounds = surrogate_bounds(mu, pi, reward, keep)
        assert error <= (min(bounds[:4]) + bounds.masked_away) * (1 + 1e-9)
        assert bounds.value <= min(bounds[:4]) + bounds.masked_away
        assert bounds.adaptive <= min(bounds.classical, bounds.pinsker_marginal, bounds.mixed / 2**0.5) * (1 + 1e-9)
        assert bounds.tightest == "adaptive"
        assert (bounds.masked_away > 0) == (masked and any((~k).any() for k in keep))
        free = surrogate_bounds(mu, pi, reward)
        assert free[:4] == bounds[:4]  # a mask changes no divergence


def test_growth_with_length():
    """Identical steps and a reward of span 1: classical ~ T(T−1), Pinsker–Marginal ~ Σ√(t−1), mixed ~ T^{3/2}."""
    a, b = normalise([0.3, -0.2]), normalise([0.31, -0.21])
    rows = []
    for T in (4, 10):
        mu, pi = [np.tile(a, (2**t, 1)) for t in range(T)], [np.tile(b, (2**t, 1)) for t in range(T)]
        rows.append(surrogate_bounds(mu, pi, np.linspace(0, 1, 2**T)))
    short, long = rows
    assert long.classical / short.classical == pytest.approx(90 / 12)
    assert long.pinsker_marginal / short.pinsker_marginal == pytest.approx(
        sum(math.sqrt(t) for t in range(10)) / sum(math.sqrt(t) for t in range(4))
    )
    assert long.mixed / short.mixed == pytest.approx((10 / 4) ** 1.5)
    assert long.adaptive < long.pinsker_marginal


@pytest.mark.parametrize("drift", [0.1, 1.0, 3.0])
def test_accepted_budget_covers_the_accepted_part_only(drift):
    for seed in range(10):
        mu, pi, _ = random_pair(seed, drift=drift)
        scale = [entropy(a) for a in mu]
        accepted, certificate, rejected = accepted_budget(mu, pi, scale, tau=1.0, eps=0.01)
        assert accepted <= certificate * (1 + 1e-12)
        assert accepted + rejected == pytest.approx(sequence_kl(mu, pi)[0], rel=1e-9)
    if drift == 3.0:
        assert accepted + rejected > certificate  # the full divergence is not certified


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match="step 1"):
        sequence_kl([np.zeros((1, 2)), np.zeros((3, 2))], [np.zeros((1, 2)), np.zeros((3, 2))])
