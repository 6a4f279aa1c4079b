"""Settings of the open loop are checked before any work."""

import pytest

from entr_lab.errors import ConfigError, RangeError, UnknownNameError
from entr_lab.sim.open_loop_result import OpenLoopConfig


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"drifts": ("featre",)}, UnknownNameError, "feature"),
        ({"drifts": ()}, RangeError, "drift models"),
        ({"positions": 0}, RangeError, "positions"),
        ({"target_rms": 0.0}, RangeError, "target_rms"),
        ({"entropy_split": 1e-3}, RangeError, "entropy_split"),
        ({"entropy_high": 0.05}, RangeError, "entropy_high"),
        ({"top_p": 1.1}, RangeError, "top_p"),
        ({"lags": (0,)}, ConfigError, "lags"),
        ({"lags": (5, 0)}, ConfigError, "ascend"),
        ({"lags": ()}, ConfigError, "lags"),
    ],
)
def test_bad_settings_are_refused(bad, error, message):
    """Each names its field."""
    with pytest.raises(error, match=message):
        OpenLoopConfig(**bad)
