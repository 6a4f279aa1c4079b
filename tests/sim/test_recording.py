"""Engine errors: sizes, independence of the seeds' neighbours, and the recorded probability."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from entr_lab.errors import RangeError
from entr_lab.sim.recording import EngineErrors, behaviour_noise, recorded_logp

SHAPE = {"horizon": 48, "rollouts": 64, "vocabulary": 32}


def test_rounding_and_flips_have_the_stated_sizes() -> None:
    errors = EngineErrors(flip_probability=0.05, flip_sd=1.5)
    noise = behaviour_noise(errors, (3, 4), 7, **SHAPE)
    relative = noise.scale - 1.0
    assert float(relative.std()) == pytest.approx(2.0**-9, rel=0.01)
    assert abs(float(relative.mean())) < 2.0**-9 / 100
    assert float(relative.abs().max()) <= 2.0**-9 * 3**0.5 * 1.001, "a rounding error is bounded"
    flipped = (noise.shift != 0).any(-1)
    assert float(flipped.float().mean()) == pytest.approx(0.05, abs=0.01)
    assert float(noise.shift[flipped].std()) == pytest.approx(1.5, rel=0.05)


def test_recording_error_is_heavy_tailed_up_to_its_floor() -> None:
    """g/√max(U, f) has second moment E[1/max(U, f)] = 1 − ln f."""
    error = behaviour_noise(EngineErrors(recording_error=1.0), tuple(range(40)), 0, **SHAPE).error
    assert float(np.mean(error**2)) == pytest.approx(1 - np.log(0.02), rel=0.03)


def test_a_seeds_noise_does_not_depend_on_the_other_seeds() -> None:
    together = behaviour_noise(EngineErrors(), (5, 6, 7), 11, **SHAPE)
    alone = behaviour_noise(EngineErrors(), (6,), 11, **SHAPE)
    assert torch.equal(together.scale[:, 1], alone.scale[:, 0])
    assert torch.equal(together.shift[:, 1], alone.shift[:, 0])
    np.testing.assert_array_equal(together.error[1], alone.error[0])


def test_no_errors_leave_everything_exact() -> None:
    none = EngineErrors(relative=0.0, flip_probability=0.0, recording_error=0.0)
    noise = behaviour_noise(none, (0,), 0, **SHAPE)
    assert torch.equal(noise.scale, torch.ones_like(noise.scale))
    assert torch.equal(noise.shift, torch.zeros_like(noise.shift))
    logp = torch.log(torch.tensor([1.0, 0.5, 1e-3, 1e-5]))
    torch.testing.assert_close(recorded_logp(logp, torch.zeros(4)), logp, rtol=1e-5, atol=1e-6)


def test_recorded_probability_is_additive_and_clipped() -> None:
    mu = torch.tensor([0.5, 0.5, 1.0, 1e-4, 0.9])
    error = torch.tensor([0.1, -0.1, 5.0, -1.0, 50.0])
    expected = [0.55, 0.45, 1.0, 1e-6, 1.0]
    recorded = recorded_logp(mu.log(), error)
    torch.testing.assert_close(recorded.exp(), torch.tensor(expected), rtol=1e-4, atol=0)
    assert bool((recorded <= 0).all()), "a recorded probability never exceeds one"


def test_bad_sizes_are_refused() -> None:
    for bad in ({"relative": -1.0}, {"flip_probability": 1.5}, {"recording_error": float("nan")}):
        with pytest.raises(RangeError):
            EngineErrors(**bad)
