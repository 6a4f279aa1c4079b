from __future__ import annotations

import asyncio

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.records import SamplingSpec
from entr_lab.real.weight_transfer import WeightManifest
from tests.real.coroutines import scenario
from tests.real.fake_engine import FakedGenerator, FakeEngine, fake_reference

SPEC = SamplingSpec(max_tokens=1)


class EngineDeadError(Exception):
    """Named like vLLM's."""


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@scenario
async def test_an_engine_without_pushed_weights_does_not_generate() -> None:
    with pytest.raises(EngineError, match="push a version before generating"):
        await FakedGenerator().generate([1], SPEC)


@scenario
async def test_an_update_is_made_in_order_and_only_while_paused() -> None:
    generator = FakedGenerator()
    proof = await generator.update_weights(WeightManifest(5, canary=fake_reference(generator.engine)), True)
    assert generator.engine.log == [
        "check_weights",
        "pause keep True",
        "take_weights",
        "label 5",
        "resume",
    ]
    assert proof is not None
    assert proof.worst < 1e-6
    assert generator.version == 5
    assert await generator.update_weights(WeightManifest(6), False) is None


@scenario
async def test_completions_come_in_order_with_their_version() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    found = await generator.generate([1, 2], SPEC, n=3)
    assert [int(completion.token_ids[0]) for completion in found][1:] == [1, 2]
    assert [completion.weight_version.tolist() for completion in found] == [[5]] * 3
    assert (await generator.health())["tokens"] == 3


@scenario
async def test_a_worker_that_disagrees_with_the_scheduler_is_refused() -> None:
    generator = FakedGenerator(engine=FakeEngine(tag=4))
    await generator.update_weights(WeightManifest(5), False)
    with pytest.raises(EngineError, match="produced by weights 4 in the worker but is labelled 5"):
        await generator.generate([1], SPEC)


@scenario
async def test_a_damaged_file_leaves_the_old_weights_in_service() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.wrong = "weights 6 were truncated"
    generator.engine.log.clear()
    with pytest.raises(EngineError, match="weights 6 were truncated"):
        await generator.update_weights(WeightManifest(6), False)
    assert generator.engine.log == ["check_weights"]
    assert not generator.dead
    assert (await generator.generate([1], SPEC))[0].weight_version.tolist() == [5]


@scenario
async def test_a_load_that_breaks_off_ends_the_engine() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.free.clear()
    waiting = asyncio.create_task(generator.generate([1], SPEC))
    await settle()
    generator.engine.fail["take_weights"] = RuntimeError("shape mismatch")
    with pytest.raises(EngineError, match="shape mismatch"):
        await generator.update_weights(WeightManifest(6), False)
    assert generator.engine.log[-3:] == ["pause keep False", "take_weights", "label 6"]  # and no resume
    assert (await waiting)[0].finish_reason == "abort"
    assert generator.dead
    with pytest.raises(EngineError, match=r"update to weights 6 broke off.*push the current weights again"):
        await generator.generate([1], SPEC)


@scenario
async def test_tokens_of_weights_that_fail_their_proof_are_not_handed_out() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.free.clear()
    waiting = asyncio.create_task(generator.generate([1], SPEC))
    await settle()
    with pytest.raises(EngineError, match=r"canary 0 .* log-prob .* in the engine"):
        await generator.update_weights(WeightManifest(6, canary=fake_reference(generator.engine, 0.1)), False)
    generator.engine.free.set()
    with pytest.raises(EngineError, match="tokens of weights 6 cannot be trusted"):
        await waiting
    await generator.update_weights(WeightManifest(7, canary=fake_reference(generator.engine)), True)
    assert (await generator.generate([1], SPEC))[0].weight_version.tolist() == [7]


@scenario
async def test_tokens_are_held_back_while_their_proof_runs() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    release = asyncio.Event()
    prove = generator._prove

    async def slow(manifest: WeightManifest):
        await release.wait()
        return await prove(manifest)

    generator._prove = slow
    update = asyncio.create_task(generator.update_weights(WeightManifest(6), False))
    await settle()
    early = asyncio.create_task(generator.generate([1], SPEC))
    await settle()
    assert not early.done()
    assert not update.done()
    release.set()
    await update
    assert (await early)[0].weight_version.tolist() == [6]


@scenario
async def test_a_cancelled_update_does_not_leave_tokens_waiting_for_ever() -> None:
    generator = FakedGenerator(EngineSettings(model="m", device="cuda", transfer="nccl"))
    update = asyncio.create_task(generator.update_weights(WeightManifest(6), False))
    await settle()
    update.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update
    assert generator.dead
    with pytest.raises(EngineError, match="cannot be trusted"):
        await generator.trust.wait(np.array([6]))


@scenario
async def test_over_nccl_the_trainer_drives_the_protocol_while_generation_is_paused() -> None:
    generator = FakedGenerator(EngineSettings(model="m", device="cuda", transfer="nccl"))
    log = generator.engine.log
    start = asyncio.create_task(generator.updates.start())
    await settle()
    assert log == []  # the trainer is early: it waits for the pause
    update = asyncio.create_task(generator.update_weights(WeightManifest(6), True))
    await start
    await generator.updates.receive("part")
    await settle()
    assert not update.done()
    await generator.updates.finish()
    await update
    assert log == ["pause keep True", "start", "update", "finish", "tag_weights", "label 6", "resume"]
    assert generator.version == 6


@scenario
async def test_cached_prompts_of_other_weights_cannot_be_found() -> None:
    generator = FakedGenerator(EngineSettings(model="m", prefix_caching=True))
    for version in (5, 6):
        await generator.update_weights(WeightManifest(version), False)
        await generator.generate([1], SPEC)
    first, second = (prompt["cache_salt"] for prompt in generator.engine.prompts)
    assert first != second
    assert "cache_salt" not in (await _prompt_without_caching())


async def _prompt_without_caching() -> dict:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    await generator.generate([1], SPEC)
    return generator.engine.prompts[0]


@scenario
async def test_a_dead_core_is_named_at_once() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.fail["generate"] = EngineDeadError()
    with pytest.raises(EngineError, match=r"process 4242\) died; restart the generator"):
        await generator.generate([1], SPEC)
    generator._process.up = False
    generator.engine.fail["health"] = RuntimeError("socket closed")
    with pytest.raises(EngineError, match="died"):
        await generator.health()
    assert generator.dead


def seats(count: int) -> EngineSettings:
    return EngineSettings(model="m", dtype="float32", max_sequences=count)


@scenario
async def test_calls_beyond_the_seats_wait_outside_the_engine_and_a_canary_does_not() -> None:
    generator = FakedGenerator(seats(2))
    engine = generator.engine
    await generator.update_weights(WeightManifest(5), False)
    engine.free.clear()
    calls = [asyncio.create_task(generator.generate([token], SPEC)) for token in range(5)]
    await settle()
    assert [prompt["prompt_token_ids"] for prompt in engine.prompts] == [[0], [1]]
    calls[2].cancel()
    calls[0].cancel()
    await settle()
    assert [prompt["prompt_token_ids"] for prompt in engine.prompts] == [[0], [1], [3]]
    await generator.update_weights(WeightManifest(6, canary=fake_reference(engine)), False)
    engine.free.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one).__name__ for one in found] == ["CancelledError", "list", "CancelledError", "list", "list"]


@scenario
async def test_a_completion_that_waits_for_its_proof_leaves_its_seat() -> None:
    generator = FakedGenerator(seats(1))
    await generator.update_weights(WeightManifest(5), False)
    generator.trust.open(5)
    first, second = (asyncio.create_task(generator.generate([token], SPEC)) for token in (1, 2))
    await settle()
    assert len(generator.engine.prompts) == 2
    generator.trust.accept(5)
    await asyncio.gather(first, second)


@scenario
async def test_who_waits_for_a_seat_of_an_engine_that_broke_never_enters_it() -> None:
    generator = FakedGenerator(seats(1))
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.free.clear()
    runs, waits = (asyncio.create_task(generator.generate([token], SPEC)) for token in (1, 2))
    await settle()
    generator.engine.fail["take_weights"] = RuntimeError("shape mismatch")
    with pytest.raises(EngineError, match="shape mismatch"):
        await generator.update_weights(WeightManifest(6), False)
    assert (await runs)[0].finish_reason == "abort"
    with pytest.raises(EngineError, match="broke off"):
        await waits
    assert len(generator.engine.prompts) == 1


@scenario
async def test_abort_ends_one_request_or_all() -> None:
    generator = FakedGenerator()
    await generator.update_weights(WeightManifest(5), False)
    generator.engine.free.clear()
    calls = [asyncio.create_task(generator.generate([1], SPEC, request_id=name)) for name in "ab"]
    await settle()
    assert await generator.abort("no such") == 0
    assert await generator.abort("a") == 1
    assert [found[0].finish_reason for found in await asyncio.gather(*calls)] == ["abort", "length"]
    assert await generator.abort() == 0


@scenario
async def test_shutdown_is_final_and_may_be_repeated() -> None:
    generator = FakedGenerator()
    engine = generator.engine
    await generator.shutdown()
    await generator.shutdown()
    assert engine.log == ["shutdown"]
    assert generator.dead
