"""The parts of vLLM's AsyncLLM that a generator calls, without vLLM: tokens on demand, and a log of the calls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import torch

from entr_lab.real.behaviour import behaviour_columns
from entr_lab.real.canary import CanaryReference
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.generator import Generator

VOCABULARY = 30


class FakeEngine:
    """Every token is drawn from one fixed distribution; requests wait until `steps` allows them tokens.

    Args:
        tag: what the worker writes beside a token, if it is not the version that it was told.
    """

    def __init__(self, tag: int | None = None) -> None:
        self.log: list[str] = []
        self.prompts: list[dict[str, Any]] = []
        self.logp = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
        self.worker = self.label = -1
        self.tag = tag
        self.free = asyncio.Event()
        self.free.set()
        self.running = asyncio.Event()
        self.running.set()
        self.fail: dict[str, Exception] = {}
        self.wrong = ""
        self.aborted: set[str] = set()
        self.engine_core = SimpleNamespace(pause_scheduler_async=self._pause)

    async def _pause(self, mode: str, clear_cache: bool) -> None:
        self._note(f"pause {mode} {clear_cache}")
        self.running.clear()

    def pause_generation(self, **_: Any) -> None:
        raise AssertionError("sleeps 20 ms; the scheduler is paused directly")

    async def resume_generation(self) -> None:
        self._note("resume")
        self.running.set()

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        self._note(method)
        if method == "tag_weights":
            self.worker = args[0]
        if method == "take_weights":
            self.worker = args[0]["version"]
        return [self.wrong] if method == "check_weights" else [None]

    async def update_weight_version(self, version: str) -> None:
        self._note(f"label {version}")
        self.label = int(version)

    async def init_weight_transfer_engine(self, request: Any) -> None:
        self._note("init")

    async def start_weight_update(self) -> None:
        self._note("start")

    async def update_weights(self, request: Any) -> None:
        self._note("update")

    async def finish_weight_update(self) -> None:
        self._note("finish")

    async def check_health(self) -> None:
        self._note("health")

    async def abort(self, names: list[str]) -> None:
        self.aborted |= set(names)
        self.free.set()
        self.running.set()

    def shutdown(self) -> None:
        self.log.append("shutdown")

    def _note(self, what: str) -> None:
        self.log.append(what)
        if error := self.fail.get(what.split()[0]):
            raise error

    async def generate(self, prompt: dict[str, Any], parameters: Any, name: str, priority: int = 0) -> Any:
        self.prompts.append(prompt)
        begun = self.worker, self.label
        if priority == 0:
            await self.free.wait()
        await self.running.wait()
        if error := self.fail.get("generate"):
            raise error
        aborted = name in self.aborted
        reason, (worker, label) = ("abort", begun) if aborted else ("length", (self.worker, self.label))
        outputs = [self._output(index, reason, worker, label) for index in reversed(range(parameters.n))]
        yield SimpleNamespace(outputs=outputs)

    def _output(self, index: int, reason: str, worker: int, label: int) -> Any:
        token = int(self.logp.argmax()) if index == 0 else index
        tag = worker if self.tag is None else self.tag
        ids, values = behaviour_columns(self.logp[None], torch.tensor([token]), tag)
        return SimpleNamespace(
            index=index,
            token_ids=[token],
            logprobs=SimpleNamespace(token_ids=ids[0].tolist(), logprobs=values[0].tolist()),
            weight_versions=[SimpleNamespace(version=str(label), start=0, end=1)],
            finish_reason=reason,
        )


class FakeProcess:
    pid = 4242

    def __init__(self) -> None:
        self.up = True

    def alive(self) -> bool:
        return self.up

    def stop(self) -> None:
        self.up = False


class FakedGenerator(Generator):
    """A generator around a `FakeEngine`, with vLLM's request classes replaced by plain ones."""

    def __init__(self, settings: EngineSettings | None = None, engine: FakeEngine | None = None) -> None:
        super().__init__(settings or EngineSettings(model="m", dtype="float32"), engine or FakeEngine(), FakeProcess())

    def _parameters(self, sampling: Any, n: int, greedy: bool = False) -> Any:
        return SimpleNamespace(n=n, sampling=sampling, greedy=greedy)


def fake_reference(engine: FakeEngine, shift: float = 0.0) -> CanaryReference:
    """What a trainer with the fake engine's own distribution would say, `shift` nats off."""
    top = engine.logp.topk(16)
    probs = engine.logp.exp()
    entropy = float(torch.special.entr(probs).sum())
    return CanaryReference(
        ((1, 2, 3),),
        top.indices[None].numpy(),
        (top.values[None] + shift).numpy(),
        torch.tensor([entropy]).numpy(),
        probs.square().sum()[None].numpy(),
    )
