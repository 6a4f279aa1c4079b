"""The learning level: small policies trained by real gradients under exact staleness, all methods × seeds at once.

The rules and objectives are the ones of `entr_lab.rules` and `entr_lab.objective`, called on batches whose leading
axis is the seeds of a method. A run's numbers are a function of (scenario, method, seed): bitwise the same whatever
other runs it is trained with, however the runs are cut into cohorts, and in whichever process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch

from entr_lab.errors import ConfigError, check_range
from entr_lab.objective import Method
from entr_lab.sim.cohort import Cohort
from entr_lab.sim.outcome import RunRecord
from entr_lab.sim.scenario import Scenario
from entr_lab.sim.workers import Control, Progress, run_jobs

__all__ = ["LearningResult", "plan_cohorts", "run_learning"]

_COHORT_RUNS = 32
"""Runs per cohort: enough to hide the cost of an operator call, few enough for their activations to stay in cache."""


@dataclass(frozen=True, slots=True, eq=False)
class LearningResult:
    """What a comparison leaves behind."""

    scenario: Scenario
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: tuple[RunRecord, ...]
    """Method by method in the order asked, within a method by seed; interrupted comparisons may lack some."""
    partial: bool
    """Whether the comparison was interrupted: some runs are shorter, or missing."""

    def of(self, method: str) -> list[RunRecord]:
        """Return the runs of one method, by seed."""
        return [run for run in self.runs if run.method == method]


def run_learning(
    scenario: Scenario,
    methods: Sequence[Method],
    seeds: Sequence[int],
    *,
    workers: int = 2,
    threads: int = 1,
    progress: Progress | None = None,
) -> LearningResult:
    """Train every method with every seed.

    Args:
        scenario: the training problem.
        methods: methods of different names.
        seeds: different non-negative integers.
        workers: processes; with one, everything runs in the calling process.
        threads: torch threads per process. More than one changes the order of some sums, hence last digits.
        progress: called with (run-updates done, run-updates in all).

    Ctrl-C ends the comparison after the update under way; the result is then marked `partial` and lacks runs without an
    evaluation. A run whose gradient
    is not finite is frozen there and marked `failed_at`; the others go on.

    Raises:
        ConfigError: no method or seed, or one twice.
        RangeError: `workers` or `threads` below 1, or a negative seed.
    """
    _check(methods, seeds)
    check_range("workers", workers, low=1)
    check_range("threads", threads, low=1)
    jobs = [
        (scenario, [methods[m] for m in chosen], list(part), threads)
        for chosen, part in plan_cohorts(len(methods), seeds, workers)
    ]
    total = len(methods) * len(seeds) * scenario.updates
    if workers == 1:
        results, complete = _run_here(jobs, total, progress)
    else:
        results, complete = run_jobs(_train, jobs, workers=min(workers, len(jobs)), total=total, progress=progress)
    names, order = [method.name for method in methods], list(seeds)
    # An interruption during the warm start leaves runs that were never evaluated: nothing can be said of them.
    runs = [run for records in results for run in records if len(run.eval_updates)]
    runs.sort(key=lambda run: (names.index(run.method), order.index(run.seed)))
    return LearningResult(scenario, tuple(names), tuple(order), tuple(runs), not complete)


def plan_cohorts(methods: int, seeds: Sequence[int], workers: int) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Cut methods × seeds into rectangles, (indices of methods, seeds) each, that keep all workers busy.

    Seeds are cut first, since a seed's noise and warm start are shared by its methods; the methods are cut for the
    seeds that are left over when every worker has as many as the others.
    """
    even = len(seeds) // workers * workers
    per_worker = even // workers
    parts = -(-per_worker * methods // _COHORT_RUNS) * workers
    everything: Sequence[int] = range(methods)
    whole = _cut(seeds[:even], min(parts, even))
    rest = _cut(everything, workers) if seeds[even:] else []
    return [(everything, block) for block in whole] + [(chosen, seeds[even:]) for chosen in rest]


def _cut(items: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Cut a sequence into at most `parts` neighbouring pieces of like size, none empty."""
    edges = [len(items) * i // max(1, parts) for i in range(parts + 1)]
    return [items[low:high] for low, high in pairwise(edges) if low < high]


def _check(methods: Sequence[Method], seeds: Sequence[int]) -> None:
    for kind, given in (("method", [method.name for method in methods]), ("seed", [str(seed) for seed in seeds])):
        if not given:
            raise ConfigError(f"no {kind} given; name at least one.")
        if twice := [item for item in given if given.count(item) > 1]:
            raise ConfigError(f"{kind} {twice[0]} is given twice; name each once.")
    for seed in seeds:
        check_range("seed", seed, low=0)


def _train(
    control: Control, scenario: Scenario, methods: Sequence[Method], seeds: Sequence[int], threads: int
) -> list[RunRecord]:
    """Train one cohort; the job of a worker process."""
    with _torch_settings(threads):
        cohort = Cohort(scenario, methods, seeds)
        for _ in cohort.train(control.stopped):
            control.report(len(methods) * len(seeds))
        return cohort.records()


def _run_here(
    jobs: Sequence[tuple[Scenario, Sequence[Method], Sequence[int], int]], total: int, progress: Progress | None
) -> tuple[list[list[RunRecord]], bool]:
    """Train the cohorts one after another in this process."""
    done = 0
    results: list[list[RunRecord]] = []
    for scenario, methods, seeds, threads in jobs:
        with _torch_settings(threads):
            cohort: Cohort | None = None
            try:
                cohort = Cohort(scenario, methods, seeds)
                for _ in cohort.train():
                    done += len(methods) * len(seeds)
                    if progress is not None:
                        progress(done, total)
            except KeyboardInterrupt:
                return [*results, *([cohort.records()] if cohort else [])], False
            results.append(cohort.records())
    return results, True


@contextmanager
def _torch_settings(threads: int) -> Iterator[None]:
    """Set the number of threads and flush denormals (Adam's decayed moments are full of them), then restore both."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
