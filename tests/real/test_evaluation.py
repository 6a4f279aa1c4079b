"""When a run is evaluated, on whom, and what is told of it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from entr_lab.pipeline import Admission, PipelineConfig
from entr_lab.real.evaluation import Evaluation, Evaluations
from entr_lab.real.reports import Evaluated

from .fakes import toy_rollouts
from .loop_fakes import Bench, PaperGenerator, play

MODES = {
    "sync": Admission.sync(),
    "async": Admission.asynchronous(3, 2),
    "exact": Admission.exact(3, 2),
}


def bench_of(admission: Admission, told: list[Evaluation], **options: Any) -> Bench:
    config = PipelineConfig(admission=admission, batch_groups=3, group_size=2)
    evaluations = Evaluations(4, options.pop("judge", play), range(100, 108), told.append)
    return Bench(config, batches=10, evaluations=evaluations, **options)


@pytest.mark.parametrize("admission", MODES.values(), ids=MODES)
def test_a_run_is_evaluated_at_its_beginning_every_so_often_and_at_its_end(admission: Admission) -> None:
    """The same samples every time; under the newest weights, exactly in mode exact; training is not disturbed."""
    told: list[Evaluation] = []
    bench = bench_of(admission, told)
    bench.run()
    assert [evaluation.done for evaluation in told] == [0, 4, 8, 10]
    for evaluation in told:
        assert (evaluation.rollouts, evaluation.failed) == (8, 0)
        assert evaluation.metrics["reward_mean"] == 0.5  # parity of eight numbers in a row
        assert evaluation.metrics["version_min"] >= evaluation.done
        if admission is MODES["exact"]:
            assert evaluation.metrics["version_min"] == evaluation.metrics["version_max"]
    assert len(bench.batches) == 10
    trained = {r.sample["id"] for _, groups in bench.trainer.seen for group in groups for r in group}
    assert not trained & {f"s{number}" for number in range(100, 108)}


def test_an_evaluation_that_a_death_cut_short_is_made_again() -> None:
    told: list[Evaluation] = []
    victim = PaperGenerator(pace=0.002)
    bench = bench_of(MODES["async"], told, generators={"g0": victim})

    async def scenario() -> None:
        run = asyncio.create_task(bench.loop.run())
        while not bench.loop._evaluations._running:
            await asyncio.sleep(0)
        victim.dead = True
        await asyncio.wait_for(run, 60)

    asyncio.run(scenario())
    assert victim.revived == 1
    assert [evaluation.done for evaluation in told] == [0, 4, 8, 10]
    assert all(evaluation.rollouts == 8 for evaluation in told)


def test_rewards_that_are_no_numbers_are_counted_as_failed() -> None:
    told: list[Evaluation] = []
    evaluations = Evaluations(1, play, (1, 2, 3), told.append)
    evaluations.consider(5, last=False)

    class Station:
        name, up_to_date = "g", True

        def evaluate(self, play: Any, numbers: Any) -> None:
            assert tuple(numbers) == (1, 2, 3)

    evaluations.advance(Station())  # type: ignore[arg-type]
    assert not evaluations.idle
    rollouts = [rollout for group in toy_rollouts(1, 4) for rollout in group]
    odd = [type(r)(**{f: getattr(r, f) for f in r.__slots__} | {"reward": float("nan")}) for r in rollouts[:1]]
    evaluations.settle(Evaluated("g", [*odd, *rollouts[1:]], failed=2))
    assert evaluations.idle
    rewards = [rollout.reward for rollout in rollouts[1:]]
    assert told[0].done == 5
    assert (told[0].rollouts, told[0].failed) == (3, 3)
    assert told[0].metrics["reward_mean"] == pytest.approx(np.mean(rewards))
    assert told[0].metrics["reward_standard_error"] == pytest.approx(np.std(rewards, ddof=1) / np.sqrt(3))


def test_nothing_is_evaluated_unless_asked_for() -> None:
    evaluations = Evaluations()
    evaluations.consider(0, last=True)
    assert evaluations.idle
