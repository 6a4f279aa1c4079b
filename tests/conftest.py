"""Settings of the whole suite: reproducible properties, one torch thread, no leaked state of random streams."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: workers share the cores

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    derandomize=True,  # the same examples in every run: a red build can be reproduced, a green one means something
    max_examples=60,
    deadline=None,  # no timed assertions
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile("thorough", parent=settings.get_profile("suite"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
