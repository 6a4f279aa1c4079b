"""The (H, |δ|) plane: boundaries are the rules' own."""

import numpy as np
import pytest

from entr_lab.report.plane import boundary_curve, plot_plane
from entr_lab.rules import Entr, Fixed, IcePop, KeepAll
from entr_lab.sim.outcome import Snapshot


def test_boundaries_are_the_rules_own():
    entropy = np.array([0.0, 0.1, 1.0, 3.0])

    below, above = boundary_curve(Entr(tau=1.0, eps=0.01), entropy)
    np.testing.assert_allclose(above, np.sqrt(entropy + 0.01), rtol=1e-12)
    np.testing.assert_allclose(below, above)

    below, above = boundary_curve(IcePop(low=0.5, high=5.0), entropy)
    np.testing.assert_allclose(above, np.log(5.0))
    np.testing.assert_allclose(below, np.log(2.0))


@pytest.mark.parametrize("dropped", [0, 50])
def test_draws_kept_and_removed_tokens(tmp_path, dropped):
    rng = np.random.default_rng(1)
    keep = np.arange(50) >= dropped
    snapshot = Snapshot(3, *(rng.random(50).astype(np.float32) for _ in range(3)), keep)

    plot_plane([snapshot, snapshot], [Entr(), Fixed(), IcePop(), KeepAll()], tmp_path / "p.png", title="t")

    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
