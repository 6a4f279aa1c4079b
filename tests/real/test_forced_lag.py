"""Forced staleness: every token has its planned version, whatever order the calls come in."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from entr_lab.errors import EngineError, ProtocolError
from entr_lab.pipeline import Admission, PipelineConfig
from entr_lab.real.forced_lag import PlannedTrajectory, VersionGate
from entr_lab.real.records import SampleCall, SamplingSpec
from entr_lab.real.version_shelf import VersionShelf
from entr_lab.real.weight_transfer import WeightManifest

from .loop_fakes import Bench, PaperGenerator


class Steady(PaperGenerator):
    """Always as many tokens as it may."""

    async def generate(self, prompt_ids, sampling, n=1, request_id=None):  # type: ignore[no-untyped-def]
        versions = []
        for _ in range(sampling.max_tokens):
            await asyncio.sleep(0)
            versions.append(self.version)
        done = (await PaperGenerator(tokens=1).generate(prompt_ids, sampling))[0]
        column = np.full(len(versions), 0.5, dtype=np.float32)
        ids = np.arange(len(prompt_ids), len(prompt_ids) + len(versions), dtype=np.int32)
        return [type(done)(ids, -column, column, column, np.array(versions, dtype=np.int64), "length")]


def shelf_of(*versions: int) -> VersionShelf:
    shelf = VersionShelf()
    for version in versions:
        shelf.put(WeightManifest(version))
    return shelf


@pytest.mark.parametrize(
    ("first", "last", "tokens", "expected"),
    [
        (3, 3, 5, [3] * 5),
        (3, 5, 6, [3, 3, 4, 4, 5, 5]),
        (3, 5, 7, [3, 3, 3, 4, 4, 4, 5]),
        (0, 4, 3, [0, 1, 2]),
    ],
)
def test_segments(first: int, last: int, tokens: int, expected: list[int]) -> None:
    """⌈tokens / versions⌉ tokens a version; each segment's prompt is the whole history."""
    generator = Steady()
    gate = VersionGate(generator, shelf_of(*range(6)))
    planned = PlannedTrajectory(gate, first, last, tokens)
    (done,) = asyncio.run(planned.generate([7, 8], SamplingSpec(max_tokens=tokens), 1, "t0"))
    assert done.weight_version.tolist() == expected
    assert done.token_ids.tolist() == list(range(2, 2 + tokens))
    assert done.finish_reason == "length"


def test_a_plan_goes_on_through_turns() -> None:
    generator = Steady()
    planned = PlannedTrajectory(VersionGate(generator, shelf_of(0, 1)), 0, 1, 8)

    async def turns() -> list[int]:
        first = await planned.generate([1], SamplingSpec(max_tokens=3))
        second = await planned.generate([1, 2], SamplingSpec(max_tokens=5))
        return [*first[0].weight_version.tolist(), *second[0].weight_version.tolist()]

    assert asyncio.run(turns()) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_the_lowest_version_goes_first_and_weights_never_change_under_a_call() -> None:
    generator = Steady()
    gate = VersionGate(generator, shelf_of(*range(5)))

    async def many() -> list[list[int]]:
        plans = [PlannedTrajectory(gate, v, v + 1, 4) for v in (3, 0, 2, 0, 3)]
        answers = await asyncio.gather(*(plan.generate([1], SamplingSpec(max_tokens=4)) for plan in plans))
        return [answer[0].weight_version.tolist() for answer in answers]

    assert asyncio.run(many()) == [[v, v, v + 1, v + 1] for v in (3, 0, 2, 0, 3)]
    assert generator.loads[-3:] == [2, 3, 4]
    assert gate.loads <= 8


def test_a_cancelled_call_does_not_hold_the_gate() -> None:
    generator = Steady()
    gate = VersionGate(generator, shelf_of(0, 1))

    async def scenario() -> int:
        stuck = asyncio.create_task(gate.generate(0, SampleCall((1,), SamplingSpec(max_tokens=100_000))))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(gate.generate(0, SampleCall((1,), SamplingSpec(max_tokens=100_000))))
        await asyncio.sleep(0)
        for task in (stuck, waiting):
            task.cancel()
        await asyncio.gather(stuck, waiting, return_exceptions=True)
        done = await asyncio.wait_for(gate.generate(1, SampleCall((1,), SamplingSpec(max_tokens=2))), 5)
        return int(done.weight_version[0])

    assert asyncio.run(scenario()) == 1


def test_tokens_of_another_version_are_refused() -> None:
    generator = Steady()

    async def scenario() -> None:
        gate = VersionGate(generator, shelf_of(0, 1))
        call = asyncio.create_task(gate.generate(0, SampleCall((1,), SamplingSpec(max_tokens=2000))))
        while gate.current != 0:
            await asyncio.sleep(0)
        for _ in range(50):  # turns of the event loop, not time: some of the 2,000 tokens are sampled by then
            await asyncio.sleep(0)
        generator.version = 9
        await call

    with pytest.raises(EngineError, match=r"planned for weights 0 has tokens of .*9"):
        asyncio.run(scenario())


def test_a_version_that_is_not_kept_is_named() -> None:
    generator = Steady()
    gate = VersionGate(generator, shelf_of(4, 5))
    with pytest.raises(ProtocolError, match=r"weights 2 are not kept any more; kept are \[4, 5\]"):
        asyncio.run(gate.generate(2, SampleCall((1,), SamplingSpec())))


def test_those_that_wait_for_one_version_go_together() -> None:
    """A load a version, not one a segment."""
    generator = Steady()
    gate = VersionGate(generator, shelf_of(*range(4)))

    async def many() -> None:
        plans = [PlannedTrajectory(gate, 0, 3, 8) for _ in range(50)]
        await asyncio.gather(*(plan.generate([1], SamplingSpec(max_tokens=8)) for plan in plans))

    asyncio.run(many())
    assert generator.loads == [0, 1, 2, 3]
    assert gate.loads == 4


def test_who_goes_away_takes_its_call_along_and_no_other() -> None:
    generator = PaperGenerator(tokens=6, pace=0.01)
    gate = VersionGate(generator, shelf_of(0))

    async def two() -> int:
        calls = [
            asyncio.create_task(gate.generate(0, SampleCall((1,), SamplingSpec(max_tokens=6), name)))
            for name in ("leaves", "stays")
        ]
        await asyncio.sleep(0.025)
        calls[0].cancel()
        return len((await calls[1]).token_ids)

    assert asyncio.run(two()) > 0
    assert generator.cancelled == ["leaves"]


def test_the_urgent_go_first() -> None:
    generator = Steady()
    gate = VersionGate(generator, shelf_of(*range(4)))

    async def both() -> None:
        slow = [gate.generate(v, SampleCall((1,), SamplingSpec(max_tokens=2))) for v in (0, 1)]
        await asyncio.gather(*slow, gate.generate(3, SampleCall((1,), SamplingSpec(max_tokens=2)), urgent=True))

    asyncio.run(both())
    assert generator.loads == [3, 0, 1]


def test_a_call_that_fails_fails_alone() -> None:
    class Fails(Steady):
        async def generate(self, prompt_ids, sampling, n=1, request_id=None):  # type: ignore[no-untyped-def]
            if request_id == "bad":
                raise EngineError("refused")
            return await super().generate(prompt_ids, sampling, n, request_id)

    gate = VersionGate(Fails(), shelf_of(0))

    async def both() -> list[object]:
        calls = (gate.generate(0, SampleCall((1,), SamplingSpec(max_tokens=2), name)) for name in ("bad", "good"))
        return await asyncio.gather(*calls, return_exceptions=True)

    bad, good = asyncio.run(both())
    assert isinstance(bad, EngineError)
    assert good.weight_version.tolist() == [0, 0]  # type: ignore[attr-defined]


def test_a_version_that_cannot_be_loaded_fails_those_that_wait_for_it_and_nobody_else() -> None:
    class Refuses(Steady):
        async def update_weights(self, manifest, clear_cache):  # type: ignore[no-untyped-def]
            if manifest.version == 0:
                raise EngineError("refused")
            await super().update_weights(manifest, clear_cache)

    gate = VersionGate(Refuses(), shelf_of(0, 1))

    async def three() -> list[object]:
        calls = (gate.generate(v, SampleCall((1,), SamplingSpec(max_tokens=2))) for v in (0, 0, 1))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(three())
    assert isinstance(first, EngineError)
    assert isinstance(second, EngineError)
    assert third.weight_version.tolist() == [1, 1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("inter", "intra"), [(0, 0), (2, 0), (0, 2), (3, 2)])
def test_a_run_with_forced_lags(inter: int, intra: int) -> None:
    """Every batch starts at target − inter − intra and ends at most at target − inter, clipped at the first version."""
    config = PipelineConfig(admission=Admission.exact(inter, intra), batch_groups=2, group_size=2)
    bench = Bench(config, batches=9, generators={"g0": PaperGenerator(tokens=12), "g1": PaperGenerator(seed=1)})
    bench.run()
    assert len(bench.trainer.seen) == 9
    for target, groups in bench.trainer.seen:
        for rollout in (r for group in groups for r in group):
            assert rollout.weight_version[0] == max(0, target - inter - intra)
            assert rollout.weight_version[-1] <= max(0, target - inter)
            assert (np.diff(rollout.weight_version) >= 0).all()
    kept = bench.loop.shelf.versions
    assert kept == list(range(max(0, 9 - inter - intra), 10))
    assert sorted(bench.trainer.released) == list(range(kept[0]))
