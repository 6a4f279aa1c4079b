"""The loop with fakes: bounds, exactly once, deaths, failures, and sentences instead of waiting for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.pipeline import Admission, OnUpdate, PipelineConfig, Policy, replay

from .loop_fakes import Bench, PaperGenerator, PaperTrainer, play


def config(admission: Admission, **settings: Any) -> PipelineConfig:
    return PipelineConfig(admission=admission, batch_groups=3, group_size=2, **settings)


def check_versions(bench: Bench) -> None:
    """Every trained token against the bound, from the rollouts themselves."""
    admission = bench.pipeline.config.admission
    assert bench.trainer.seen
    for target, groups in bench.trainer.seen:
        last = target + admission.updates_per_batch - 1
        for rollout in (rollout for group in groups for rollout in group):
            versions = rollout.weight_version
            assert (np.diff(versions) >= 0).all()
            assert last - versions[-1] <= admission.max_inter
            assert versions[-1] - versions[0] <= admission.max_intra
            assert versions[-1] <= target


def check_once(bench: Bench) -> None:
    """Every group is trained once, in what the trainer saw and in what the log gives again."""
    trained = [group.id for batch in bench.batches for group in batch.groups]
    assert len(trained) == len(set(trained))
    prompts = [group[0].sample["id"] for _, groups in bench.trainer.seen for group in groups]
    assert len(prompts) == len(set(prompts)) == len(trained)
    assert all(len({r.sample["id"] for r in group}) == 1 for _, groups in bench.trainer.seen for group in groups)
    _, batches = replay(bench.events)
    again = [group.id for batch in batches for group in batch.groups]
    assert again[: len(trained)] == trained
    bench.pipeline.audit()


MODES = {
    "sync": Admission.sync(),
    "one-step": Admission.one_step(),
    "async": Admission.asynchronous(3, 2),
    "async, two updates a batch": Admission.asynchronous(4, 2, updates_per_batch=2),
    "drop": Admission.asynchronous(1, 1, policy=Policy.DROP, on_update=OnUpdate.ABORT),
    "requeue": Admission.asynchronous(1, 0, policy=Policy.REQUEUE, on_update=OnUpdate.ABORT),
}


@pytest.mark.parametrize("admission", MODES.values(), ids=MODES)
def test_bounds_hold_and_each_group_is_trained_once(admission: Admission) -> None:
    bench = Bench(config(admission), batches=8)
    bench.run()
    assert len(bench.batches) == 8
    assert [report.step for report in bench.reports] == list(range(8))
    check_versions(bench)
    check_once(bench)


def test_sync_is_on_policy() -> None:
    bench = Bench(config(Admission.sync()))
    bench.run()
    for target, groups in bench.trainer.seen:
        assert {int(v) for group in groups for r in group for v in r.weight_version} == {target}


def test_weights_change_inside_trajectories_and_are_let_go() -> None:
    bench = Bench(config(Admission.asynchronous(3, 2)), batches=12, generators={"g0": PaperGenerator(tokens=12)})
    bench.run()
    mixed = [r for _, groups in bench.trainer.seen for group in groups for r in group if np.ptp(r.weight_version)]
    assert mixed
    assert bench.loop.shelf.versions == [12]
    assert bench.trainer.released == list(range(12))


class Patient(PaperGenerator):
    """Holds every update but the first back until another rollout has started."""

    def __init__(self) -> None:
        super().__init__(pace=0.001)
        self.started = asyncio.Event()

    async def generate(self, *arguments: Any) -> Any:
        self.started.set()
        return await super().generate(*arguments)

    async def update_weights(self, manifest: Any, clear_cache: bool) -> None:
        if self.loads:
            self.started.clear()
            await asyncio.wait_for(self.started.wait(), 10.0)
        await super().update_weights(manifest, clear_cache)


def test_rollouts_start_while_weights_are_loaded() -> None:
    bench = Bench(config(Admission.asynchronous(3, 2)), batches=8, generators={"g0": Patient()})
    bench.run()
    check_versions(bench)
    check_once(bench)


def test_the_same_versions_are_reported_in_the_trace_of_the_pipeline() -> None:
    bench = Bench(config(Admission.asynchronous(3, 2)))
    bench.run()
    for batch, (_, groups) in zip(bench.batches, bench.trainer.seen, strict=True):
        for group, rollouts in zip(batch.groups, groups, strict=True):
            for trajectory, rollout in zip(group.done, rollouts, strict=True):
                assert trajectory.tokens == len(rollout.token_ids)
                assert trajectory.reward == rollout.reward


def test_a_dead_generator_comes_back_and_loses_nothing() -> None:
    victim = PaperGenerator(pace=0.001)
    generators = {"g0": victim, "g1": PaperGenerator(pace=0.001, seed=1)}
    bench = Bench(config(Admission.asynchronous(3, 2)), batches=25, generators=generators)

    async def scenario() -> None:
        run = asyncio.create_task(bench.loop.run())
        while len(bench.batches) < 3:
            await asyncio.sleep(0)
        victim.dead = True
        await asyncio.wait_for(run, 60)

    asyncio.run(scenario())
    assert victim.revived == 1
    assert bench.reports[-1].metrics["lost_generators"] == 1
    check_versions(bench)
    check_once(bench)


def test_the_last_generator_that_stays_away_ends_the_run() -> None:
    class Lost(PaperGenerator):
        async def revive(self, manifest: Any) -> None:
            raise EngineError("g0 did not come back within 180 s")

    victim = Lost(pace=0.001)
    bench = Bench(config(Admission.asynchronous(3, 2)), batches=100, generators={"g0": victim})

    async def scenario() -> None:
        run = asyncio.create_task(bench.loop.run())
        while len(bench.batches) < 2:
            await asyncio.sleep(0)
        victim.dead = True
        await asyncio.wait_for(run, 60)

    with pytest.raises(EngineError, match="no generator is left: g0 did not come back"):
        asyncio.run(scenario())


def test_a_refused_proof_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entr_lab.real.station._FAREWELL", 0.0)
    generator = PaperGenerator()
    bench = Bench(config(Admission.asynchronous(3, 2)), batches=100, generators={"g0": generator})

    async def scenario() -> None:
        run = asyncio.create_task(bench.loop.run())
        while len(bench.batches) < 2:
            await asyncio.sleep(0)
        generator.refuse = EngineError("canary 0 differs")
        await asyncio.wait_for(run, 60)

    with pytest.raises(EngineError, match="canary 0 differs"):
        asyncio.run(scenario())


def test_a_failing_trainer_ends_the_run() -> None:
    trainer = PaperTrainer()
    trainer.broken = EngineError("the trainer is gone")
    with pytest.raises(EngineError, match="the trainer is gone"):
        Bench(config(Admission.sync()), trainer=trainer).run()


def test_rollouts_that_fail_are_tried_again() -> None:
    failed: list[str] = []

    async def rough(generator: Any, sample: int, request: str) -> Any:
        if int(request[1:]) % 5 == 0:
            failed.append(request)
            raise ValueError("the environment's own mistake")
        return await play(generator, sample, request)

    bench = Bench(config(Admission.asynchronous(3, 2)), play=rough)
    bench.run()
    assert failed
    assert bench.reports[-1].metrics["failed_rollouts"] <= len(failed)
    check_versions(bench)
    check_once(bench)


def test_an_environment_that_always_fails_ends_the_run() -> None:
    async def broken(generator: Any, sample: int, request: str) -> Any:
        raise ValueError("no such column")

    with pytest.raises(EngineError, match="32 rollouts failed one after another; the last: ValueError: no such column"):
        Bench(config(Admission.asynchronous(3, 2)), play=broken).run()


def test_a_reward_that_is_no_number_is_a_failure() -> None:
    async def nan(generator: Any, sample: int, request: str) -> Any:
        rollout = await play(generator, sample, request)
        object.__setattr__(rollout, "reward", float("nan"))
        return rollout

    with pytest.raises(EngineError, match="was given the reward nan"):
        Bench(config(Admission.asynchronous(3, 2)), play=nan).run()


def test_limits_that_exclude_each_other_are_a_sentence_and_not_a_wait() -> None:
    """No generator may ever start a rollout."""
    with pytest.raises(EngineError, match=r"nothing is running and nothing can start: trainer .*, g0 waits: no-slots"):
        Bench(config(Admission.sync()), slots=0).run(5)


def test_a_straggler_is_settled_at_its_deadline() -> None:
    async def slow(generator: Any, sample: int, request: str) -> Any:
        if sample == 0:
            await asyncio.sleep(1000)
        return await play(generator, sample, request)

    settings = config(Admission.asynchronous(3, 2), deadline=0.2)
    bench = Bench(settings, play=slow)
    bench.run()
    assert bench.pipeline.counts.dropped == {"straggler": 1}
    check_once(bench)


def test_unwanted_rollouts_are_cancelled_in_the_engine() -> None:
    class Stuck(PaperGenerator):
        async def sample(self, prompt_ids: Any, *arguments: Any) -> Any:
            if list(prompt_ids) == [0]:
                await asyncio.sleep(1000)
            return await super().sample(prompt_ids, *arguments)

    stuck = Stuck()
    bench = Bench(config(Admission.asynchronous(3, 2), deadline=0.2), generators={"g0": stuck})
    bench.run()
    assert sorted(stuck.cancelled) == ["t0/0", "t1/0"]


def test_shares_of_time_sum_to_one() -> None:
    bench = Bench(config(Admission.asynchronous(3, 2)))
    bench.run()
    metrics = bench.reports[-1].metrics
    for name in ("g0", "g1", "trainer"):
        assert sum(v for k, v in metrics.items() if k.startswith(f"time/{name}/")) == pytest.approx(1.0)
    assert metrics["rollout_tokens_per_second"] > 0


def test_attribution_comes_when_due() -> None:
    bench = Bench(config(Admission.asynchronous(3, 2)), probe_every=2)
    bench.run()
    assert ["delta_rms" in report.metrics for report in bench.reports] == [True, False] * 3
