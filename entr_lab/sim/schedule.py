"""A schedule: how stale the tokens of consumed trajectories are, as step functions of the fraction of their length.

The time level writes a sample of the trajectories that a plan trains on; the learning level reads it in place of its
own law of lags. A trajectory of the plan has thousands of tokens and one of the learning level a few dozen, so what is
kept is  lag(f), 0 ≤ f < 1:  non-increasing (weights only get newer while a trajectory runs), at least 0. The file is
JSON, versioned, validated whole before use.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from entr_lab.errors import DataError, check_range
from entr_lab.pipeline.versions import VersionSpan

__all__ = ["Schedule", "read_schedule", "steps_of", "write_schedule"]

Steps = tuple[tuple[float, int], ...]
"""((end of the piece as a fraction of the length, lag in versions), …); the last end is 1."""


class Schedule(BaseModel):
    """Step functions of consumed trajectories, in the order in which they were consumed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["entr-lab-schedule"] = "entr-lab-schedule"
    version: Literal[1] = 1
    plan: str
    rollouts: tuple[Steps, ...]

    @model_validator(mode="after")
    def _check(self) -> Schedule:
        if not self.rollouts:
            raise ValueError("the schedule holds no rollout")
        for number, steps in enumerate(self.rollouts):
            ends = [end for end, _ in steps]
            lags = [lag for _, lag in steps]
            if not steps or ends[-1] != 1.0 or not all(a < b for a, b in pairwise([0.0, *ends])):
                raise ValueError(f"the fractions of rollout {number} do not rise to 1")
            if lags[-1] < 0 or not all(a >= b for a, b in pairwise(lags)):
                raise ValueError(f"the lags of rollout {number} rise or are negative")
        return self

    @property
    def max_lag(self) -> int:
        """Largest lag of any token, in versions."""
        return max(steps[0][1] for steps in self.rollouts)

    @property
    def mean_lag(self) -> float:
        """Mean lag over trajectories and over the fraction of their length, in versions."""
        total = 0.0
        for steps in self.rollouts:
            start = 0.0
            for end, lag in steps:
                total += lag * (end - start)
                start = end
        return total / len(self.rollouts)

    def lags(self, n_rollouts: int, n_tokens: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw rollouts of `n_tokens` tokens, int64 `[n_rollouts, n_tokens]`; token t has the lag at (t + ½)/T.

        Trajectories are drawn independently, with replacement. Each row is non-increasing and ≥ 0.
        """
        check_range("n_rollouts", n_rollouts, low=1)
        check_range("n_tokens", n_tokens, low=1)
        middles = (np.arange(n_tokens) + 0.5) / n_tokens
        table = np.empty((n_rollouts, n_tokens), dtype=np.int64)
        for row, number in enumerate(rng.integers(len(self.rollouts), size=n_rollouts)):
            ends, lags = zip(*self.rollouts[number], strict=True)
            table[row] = np.asarray(lags)[np.searchsorted(ends, middles, side="right")]
        return table


def steps_of(spans: Sequence[VersionSpan], target_version: int) -> Steps:
    """Return the step function of a trajectory that is trained on from `target_version`.

    Gaps between spans (tool answers) are left out: a fraction counts the trajectory's own tokens.
    """
    total = sum(span.stop - span.start for span in spans)
    steps: list[tuple[float, int]] = []
    done = 0
    for span in spans:
        done += span.stop - span.start
        lag = target_version - span.version
        if steps and steps[-1][1] == lag:
            steps.pop()
        steps.append((1.0 if done == total else done / total, lag))
    return tuple(steps)


def write_schedule(path: Path, plan: str, rollouts: Iterable[Steps]) -> Schedule:
    """Validate and write a schedule, whole or not at all; returns it."""
    schedule = Schedule(plan=plan, rollouts=tuple(rollouts))
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(schedule.model_dump_json() + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return schedule


def read_schedule(path: Path) -> Schedule:
    """Read a schedule that `write_schedule` wrote.

    Raises:
        DataError: the file is missing, truncated, of another format, or its numbers are not lags.
    """
    try:
        return Schedule.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DataError(
            f"the schedule {path} cannot be read ({error.strerror}); write one with entr-lab plan --out."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"the schedule {path} is not whole JSON ({error}); write it again with entr-lab plan --out."
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its content"
        raise DataError(
            f"the schedule {path} cannot be used: {where}: {first['msg']}; write it again with entr-lab plan --out."
        ) from None
