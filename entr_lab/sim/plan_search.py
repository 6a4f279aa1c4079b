"""Questions to a plan: against its synchronous twin, over splits and bounds, with one generator more.

Every comparison is paired: both sides meet the same prompts and lengths, seed by seed. Runs are independent, so a grid
is spread over processes; the answers do not depend on how many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

from entr_lab.errors import ConfigError, EngineError, check_range
from entr_lab.sim.plan_config import parse_plan, with_protocol, with_split
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.time_level import simulate
from entr_lab.sim.time_stats import TimeResult, mean_of, quantile_of

__all__ = [
    "Point",
    "Progress",
    "Runner",
    "calibrated",
    "evaluate",
    "evaluate_all",
    "one_more_generator",
    "steps_for",
    "synchronous_twin",
    "with_bound",
]

Progress = Callable[[int, int], None]
"""Told after each run: how many are done, of how many."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run in short.

    Attributes:
        plan: the plan.
        seed: its seed.
        steps: trainer steps that it was judged on.
        tokens_per_second: trained response tokens per second.
        seconds_per_step: mean time per batch.
        staleness_mean: mean staleness of a trained token, in versions.
        staleness_p99: its 99 % quantile.
        staleness_max: its largest.
        generator_busy, trainer_busy: shares of their time.
    """

    plan: Plan
    seed: int
    steps: int
    tokens_per_second: float
    seconds_per_step: float
    staleness_mean: float
    staleness_p99: int
    staleness_max: int
    generator_busy: float
    trainer_busy: float

    @classmethod
    def of(cls, plan: Plan, seed: int, result: TimeResult) -> Point:
        """Shorten a result."""
        return cls(
            plan,
            seed,
            result.steps,
            result.tokens_per_second,
            result.seconds_per_step,
            mean_of(result.token_staleness),
            quantile_of(result.token_staleness, 0.99),
            max(result.token_staleness),
            result.generator_busy,
            result.trainer_busy,
        )


def evaluate(job: tuple[Plan, int, int]) -> Point:
    """Run one (plan, steps, seed)."""
    plan, steps, seed = job
    return Point.of(plan, seed, simulate(plan, steps=steps, seed=seed))


def evaluate_all(
    jobs: Sequence[tuple[Plan, int, int]], *, workers: int = 1, progress: Progress | None = None
) -> list[Point]:
    """Run many (plan, steps, seed), in order, over `workers` processes."""
    with Runner(workers) as runner:
        return runner.run(jobs, progress)


class Runner:
    """Processes that run jobs (plan, steps, seed); a context that ends them. The answers do not depend on how many.

    Args:
        workers: processes; with 1, jobs run in this one.

    Raises:
        RangeError: `workers` is less than 1.
    """

    def __init__(self, workers: int) -> None:
        check_range("workers", workers, low=1)
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, jobs: Sequence[tuple[Plan, int, int]], progress: Progress | None = None) -> list[Point]:
        """Run jobs and return their points, in order.

        Raises:
            EngineError: a process died.
        """
        points: list[Point] = []
        try:
            for point in self._map(jobs):
                points.append(point)
                if progress is not None:
                    progress(len(points), len(jobs))
        except BrokenProcessPool:
            raise EngineError(
                "a worker process died, most likely for lack of memory; use fewer workers or smaller plans."
            ) from None
        return points

    def _map(self, jobs: Sequence[tuple[Plan, int, int]]) -> Iterable[Point]:
        if self._workers == 1 or len(jobs) < 2:
            return map(evaluate, jobs)
        if self._pool is None:
            # A fresh interpreter per process: a forked copy of a process with torch's threads may hang.
            self._pool = ProcessPoolExecutor(min(self._workers, len(jobs)), mp_context=get_context("spawn"))
        return self._pool.map(evaluate, jobs, chunksize=max(1, len(jobs) // (8 * self._workers)))


def steps_for(plan: Plan, rollouts: int, *, low: int = 24, high: int = 400) -> int:
    """Return how many steps make about `rollouts` rollouts, within [low, high]."""
    return max(low, min(high, rollouts // (plan.batch.size * plan.batch.rollouts)))


def synchronous_twin(plan: Plan) -> Plan:
    """Return the plan as a synchronous run on the same GPUs, with the differences that its `baseline` names."""
    data = plan.model_dump()
    twin = plan.baseline
    protocol = {"mode": twin.mode, "zero_variance": plan.protocol.zero_variance}
    if twin.tensor_parallel is not None:
        data["tensor_parallel"] = twin.tensor_parallel
    if twin.forward_passes is not None and plan.hardware is not None:
        data["hardware"] = data["hardware"] | {"forward_passes": twin.forward_passes}
    if twin.groups is not None:
        data["batch"] = {"groups": twin.groups, "rollouts": plan.batch.rollouts}
    return parse_plan(data | {"name": f"{plan.name} (synchronous)", "protocol": protocol})


def calibrated(plan: Plan, *, steps: int, seed: int = 0) -> Plan:
    """Return the plan with its two scales set so that its synchronous twin takes the published phases' seconds.

    Only the synchronous half of a published row is used, so the asynchronous half remains a prediction.

    Raises:
        ConfigError: the plan has no chips to scale, or its source does not give the phases.
    """
    published = plan.published
    if plan.hardware is None or published is None or published.sync_generation_seconds is None:
        raise ConfigError(f"{plan.name} has no published phases of a synchronous step; give published.sync_*_seconds.")
    assert published.sync_training_seconds is not None
    twin = synchronous_twin(plan)
    result = simulate(twin, steps=steps, seed=seed)
    trainer = result.accounts["trainer"]
    generation = trainer["generation"] / result.steps
    training = trainer["training"] / result.steps
    scales = {
        "decode_scale": plan.hardware.decode_scale * published.sync_generation_seconds / generation,
        "trainer_scale": plan.hardware.trainer_scale * published.sync_training_seconds / training,
    }
    return parse_plan(plan.model_dump() | {"hardware": plan.hardware.model_dump() | scales})


def one_more_generator(plan: Plan) -> Plan:
    """Return the plan with one generator, and its GPUs, more."""
    tp = plan.tensor_parallel
    return with_split(plan, plan.generator_gpus + tp, gpus=plan.gpus + tp)


def with_bound(plan: Plan, inter: int, intra: int) -> Plan:
    """Return the plan as async under another bound."""
    return with_protocol(plan, mode="async", max_inter=inter, max_intra=intra)
