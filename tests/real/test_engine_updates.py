"""Updates in flight in a real engine: versions, caches, truncated files, deaths."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest

from entr_lab.errors import EngineError
from entr_lab.real.canary import model_logits
from entr_lab.real.records import Completion, SamplingSpec
from tests.real.engines import PROMPTS, LiveEngine

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]

LONG = SamplingSpec(max_tokens=450)


def recomputed(live: LiveEngine, prompt: list[int], completion: Completion) -> np.ndarray:
    """Log-probs of a completion under the model's present weights, by full recomputation."""
    rows = model_logits(live.model)([*prompt, *completion.token_ids.tolist()])[len(prompt) - 1 : -1].log_softmax(-1)
    return rows.numpy()[np.arange(len(rows)), completion.token_ids]


async def generate_through_updates(live: LiveEngine, requests: int, updates: int, clear_cache: bool):
    """Start long requests and push weights while they run."""
    first = live.version
    calls = [asyncio.create_task(live.generator.generate([1, 2, place], LONG)) for place in range(requests)]
    for _ in range(updates):
        await asyncio.sleep(0.02)
        live.perturb(0.1)
        await live.update(clear_cache=clear_cache)
    return first, [found[0] for found in await asyncio.gather(*calls)]


def test_three_updates_in_flight_label_every_token_twice_alike(live: LiveEngine) -> None:
    first, found = live.run(generate_through_updates(live, 24, 4, clear_cache=False))
    # read_completion has refused any token whose span and tag differ; here: that the updates were in flight.
    spread = [set(completion.weight_version.tolist()) for completion in found]
    assert max(len(versions) for versions in spread) >= 4
    assert all(min(versions) >= first for versions in spread)
    for completion in found:
        assert (np.diff(completion.weight_version) >= 0).all()
        assert len(completion.token_ids) == LONG.max_tokens


def test_a_cleared_cache_is_recomputed_and_a_kept_one_is_not(live: LiveEngine) -> None:
    for clear_cache in (True, False):
        first, found = live.run(generate_through_updates(live, 2, 1, clear_cache))
        for place, completion in enumerate(found):
            after = completion.weight_version > first
            assert after.any()
            assert not after.all()
            difference = np.abs(recomputed(live, [1, 2, place], completion) - completion.logp_mu)
            assert difference[~after].max() > 0.05  # other weights
            if clear_cache:
                assert difference[after].max() < 1e-4
            else:
                assert difference[after].max() > 0.05  # the new weights, on keys and values of the old


def test_a_stale_prefix_cache_is_caught_and_the_salt_prevents_it(
    live: LiveEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(PROMPTS[-1]) > 128  # a whole block of the cache, or nothing could be stale
    live.perturb(0.3)
    assert live.push(clear_cache=False).worst < 1e-4
    monkeypatch.setattr(live.generator, "_cache_salt", lambda: "the same for all weights")
    live.push(clear_cache=False)  # fills the cache under this salt
    live.perturb(0.3)
    with pytest.raises(EngineError, match=r"canary 1 \(prompt of 160 tokens\)"):
        live.push(clear_cache=False)
    assert live.push(clear_cache=True).worst < 1e-4


def test_a_truncated_weight_file_leaves_the_old_weights_in_service(live: LiveEngine) -> None:
    before = live.version
    manifest = live.publish()
    os.truncate(manifest.path, manifest.size // 2)
    with pytest.raises(EngineError, match=rf"weights {live.version} were truncated in transfer"):
        live.run(live.generator.update_weights(manifest, False))
    live.sender.release(manifest)
    (completion,) = live.run(live.generator.generate([1, 2, 3], SamplingSpec(max_tokens=8)))
    assert completion.weight_version.tolist() == [before] * 8
    assert np.abs(recomputed(live, [1, 2, 3], completion) - completion.logp_mu).max() < 1e-4
    assert live.push().version == live.version


def test_a_stop_token_is_part_of_the_completion(live: LiveEngine) -> None:
    stop = tuple(range(0, 64, 2))
    found = live.run(live.generator.generate([1, 2, 3], SamplingSpec(stop_token_ids=stop), n=16))
    assert {completion.finish_reason for completion in found} == {"stop"}
    for completion in found:
        assert completion.token_ids[-1] % 2 == 0
        assert (completion.token_ids[:-1] % 2 == 1).all()


def test_aborted_requests_come_back_with_what_they_have(live: LiveEngine) -> None:
    async def scenario() -> Completion:
        call = asyncio.create_task(live.generator.generate([1, 2, 3], SamplingSpec(max_tokens=400), request_id="x"))
        await asyncio.sleep(0.1)
        assert await live.generator.abort("x") == 1
        return (await call)[0]

    completion = live.run(scenario())
    assert completion.finish_reason == "abort"
    assert len(completion.token_ids) < 400
    assert len(completion.logp_mu) == len(completion.token_ids)


def test_a_seed_repeats_a_completion(live: LiveEngine) -> None:
    spec = SamplingSpec(max_tokens=16, seed=7)
    first, second = (live.run(live.generator.generate([1, 2, 3], spec))[0] for _ in range(2))
    assert first.token_ids.tolist() == second.token_ids.tolist()


def test_the_engine_listens_on_loopback_only(live: LiveEngine) -> None:
    import psutil

    listening = [
        connection.laddr.ip
        for process in (psutil.Process(), psutil.Process(live.run(live.generator.health())["core_pid"]))
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    ]
    assert set(listening) <= {"127.0.0.1", "::1"}


def test_nothing_is_left_in_shared_memory_after_an_update(live: LiveEngine) -> None:
    live.push()
    assert list(live.sender.folder.iterdir()) == []
    assert live.sender.folder.parent == Path("/dev/shm")
