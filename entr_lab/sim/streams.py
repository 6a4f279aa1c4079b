"""Counter-based random streams: one per (seed, purpose, index), never shared between runs by accident.

A run's random numbers are a function of its seed alone: not of the method, of the other runs in its batch, of the
worker or of what was drawn before. All methods at one seed therefore see the same prompts, the same sampling
uniforms and the same mismatch noise (common random numbers), which is what makes paired differences tight.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from entr_lab.errors import check_range

__all__ = ["Purpose", "stream"]


class Purpose(IntEnum):
    """What a stream is for. The numbers are part of every recorded result: append, never renumber."""

    TASK = 0
    INITIAL_WEIGHTS = 1
    TEACHER = 2
    PROMPTS = 3
    SAMPLING = 4
    ENVIRONMENT = 5
    LOGIT_NOISE = 6
    FLIPS = 7
    RECORDING = 8
    EVAL_PROMPTS = 9
    EVAL_SAMPLING = 10
    EVAL_ENVIRONMENT = 11


def stream(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """Return the generator of one (seed, purpose, index).

    Philox with key (seed, purpose) and `index` (usually the update) in the high word of its 256-bit counter:
    streams of different index are 2^192 draws apart and cannot overlap.

    Raises:
        RangeError: `seed` or `index` is negative or does not fit 64 bits.
    """
    check_range("seed", seed, low=0, high=2**64 - 1)
    check_range("stream index", index, low=0, high=2**64 - 1)
    key = np.array([seed, int(purpose)], dtype=np.uint64)
    counter = np.array([0, 0, 0, index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
