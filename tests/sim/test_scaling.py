"""The log-log slope and its intervals."""

import math

import numpy as np
import pytest
import torch

from entr_lab.errors import DataError, RangeError, ShapeError, UnknownNameError
from entr_lab.sim.scaling import fit_slope, seed_estimate


def entropies(n: int, seed: int = 0) -> torch.Tensor:
    """H log-uniform over [0.005, 2]."""
    return torch.from_numpy(np.exp(np.random.default_rng(seed).uniform(math.log(0.005), math.log(2), n)))


def fit(h, moment, kind, *, seed=1, low=0.005, high=2.0, resamples=200):
    rng = np.random.default_rng(seed)
    return fit_slope(h, moment, kind=kind, low=low, high=high, rng=rng, resamples=resamples)


@pytest.mark.parametrize(("kind", "slope"), [("rms", 0.5), ("abs", 1.0)])
def test_a_linear_moment_has_an_exact_slope(kind, slope):
    """Bin means of H and of 3 H are proportional, so the fit is exact and no resample differs."""
    h = entropies(4000)

    found = fit(h, 3 * h, kind)

    assert (found.value, found.low, found.high) == pytest.approx((slope,) * 3, abs=1e-9)


def test_a_power_law_is_recovered():
    """E[δ²] ∝ H^1.3, whose bin means bend a little, gives 0.65."""
    h = entropies(20_000)

    assert fit(h, h**1.3, "rms").value == pytest.approx(0.65, abs=3e-3)


def test_the_range_is_respected():
    """A law that changes at 0.1 shows one exponent on either side."""
    h = entropies(20_000)
    moment = torch.where(h < 0.1, h, 0.1 * (h / 0.1) ** 2)

    assert fit(h, moment, "rms", high=0.1).value == pytest.approx(0.5, abs=0.01)
    assert fit(h, moment, "rms", low=0.1).value == pytest.approx(1.0, abs=0.01)


def test_intervals_cover():
    """Exponential noise around H: of 60 intervals of 95 %, at least 50 hold the truth (57 expected, s.d. 1.7)."""
    covered, widths = 0, []
    for seed in range(60):
        h = entropies(3000, seed)
        noise = torch.from_numpy(np.random.default_rng(1000 + seed).exponential(size=len(h)))
        found = fit(h, h * noise, "rms", seed=seed)
        covered += found.low <= 0.5 <= found.high
        widths.append(found.high - found.low)
    assert covered >= 50
    assert 0.005 < np.mean(widths) < 0.05


def test_zero_moments_and_empty_bins_do_not_break_the_fit():
    """A bin whose moment is 0 has no logarithm and is skipped."""
    h = entropies(4000)
    low, high = (0.005 * 400 ** (edge / 16) for edge in (4, 5))  # the fifth of 16 bins
    moment = torch.where((h >= low) & (h < high), 0.0, h)

    assert fit(h, moment, "rms").value == pytest.approx(0.5, abs=1e-9)


def test_bad_input_is_refused():
    """Shapes, kinds, ranges, and too few bins."""
    h = entropies(100)
    with pytest.raises(ShapeError, match="share a shape"):
        fit(h, h[:50], "rms")
    with pytest.raises(UnknownNameError, match="rms"):
        fit(h, h, "mean")
    with pytest.raises(RangeError, match="low"):
        fit(h, h, "rms", low=0.0)
    with pytest.raises(DataError, match="3 filled bins"):
        fit(h, h, "rms", low=3.0, high=10.0)


def test_estimate_over_seeds():
    """Student's t with two degrees: 4.3027/√3; one seed has no interval, none no estimate."""
    found = seed_estimate([1.0, 2.0, 3.0])

    assert found.value == 2.0
    assert found.high - 2.0 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert 2.0 - found.low == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert math.isnan(seed_estimate([1.0]).low)
    with pytest.raises(DataError, match="at least one"):
        seed_estimate([])
