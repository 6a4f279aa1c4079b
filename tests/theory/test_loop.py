"""G4: the negative control runs away, the outward rule is held, on paired noise."""

import numpy as np
import pytest

from entr_lab.errors import RangeError, UnknownNameError
from entr_lab.theory.loop import run_loop

SEEDS = range(3)


def tail(rule):
    return np.array([run_loop(rule, seed=s).second_moment[-20:].mean() for s in SEEDS])


def test_sign_decides_escape_and_return():
    inward_dropped, symmetric, outward = tail("entr-inward-dropped"), tail("entr"), tail("entr-outward")
    assert np.all(inward_dropped > 3 * symmetric)
    assert np.all(symmetric > 2 * outward)


def test_same_seed_same_run_and_start_on_policy():
    a, b = run_loop("entr", seed=3, updates=10), run_loop("entr", seed=3, updates=10)
    np.testing.assert_array_equal(a.second_moment, b.second_moment)
    assert a.second_moment[0] < 1e-25
    assert a.dropped[0] == 0.0
    assert a.entropy > 0


def test_rules_share_their_noise():
    """Until a rule first differs from keep-all, the two runs are the same."""
    a, b = run_loop("keep-all", seed=0, updates=3), run_loop("fixed", seed=0, updates=3)
    np.testing.assert_array_equal(a.second_moment[:2], b.second_moment[:2])


def test_bad_arguments_are_refused():
    with pytest.raises(UnknownNameError, match="entr"):
        run_loop("entrr", seed=0)
    with pytest.raises(RangeError, match="updates"):
        run_loop("entr", seed=0, updates=0)
