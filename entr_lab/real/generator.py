"""A vLLM engine that returns the behaviour of every token and takes new weights while it generates.

Plain asyncio around `AsyncLLM`, no Ray; `actors` puts it into a process of its own. Nothing here imports vllm before
`start`. A completion that holds tokens of a weight version is handed out only after that version's proof. Ours.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Self

from entr_lab.errors import EngineError
from entr_lab.real.behaviour import COLUMNS, read_completion
from entr_lab.real.canary import CanaryReference
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.engine_updates import EngineUpdates
from entr_lab.real.folders import own_folder
from entr_lab.real.processes import StartedProcesses
from entr_lab.real.proof import Proof, prove
from entr_lab.real.records import Completion, SamplingSpec
from entr_lab.real.trust import VersionTrust
from entr_lab.real.weight_transfer import WeightManifest

__all__ = ["Generator"]

_CANARY_PRIORITY = -1
_CANARY_SAMPLING = SamplingSpec(max_tokens=1)


class Generator:
    """One engine and the weights that it holds.

    Use `await Generator.start(settings)`, and `await generator.shutdown()` at the end.
    """

    def __init__(self, settings: EngineSettings, engine: Any, process: StartedProcesses) -> None:
        self.settings = settings
        self.engine = engine
        self.trust = VersionTrust()
        self.updates = EngineUpdates(engine, settings.transfer, self._guard)
        self.tokens = 0
        """Tokens handed out so far."""
        self._process = process
        self._ids = itertools.count()
        self._running: set[str] = set()
        self._seats = asyncio.Semaphore(settings.max_sequences)
        self._updating = asyncio.Lock()

    @property
    def version(self) -> int:
        """Of the weights in the engine; −1 until the first update."""
        return self.updates.version

    @classmethod
    async def start(cls, settings: EngineSettings) -> Self:
        """Build the engine; takes 8 to 30 seconds.

        Raises:
            EngineError: it did not start; the message holds the engine's own.
        """
        # vLLM leaves the sockets between an engine's processes behind.
        process = StartedProcesses(own_folder(Path(tempfile.gettempdir())))
        os.environ.update(settings.environment() | {"VLLM_RPC_BASE_PATH": str(process.folder)})
        from vllm.config.weight_transfer import WeightTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = settings.engine_arguments()
        arguments["weight_transfer_config"] = WeightTransferConfig(backend=settings.transfer)
        try:
            engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        except Exception as error:
            process.find()
            process.stop()
            raise EngineError(f"the engine did not start with model {settings.model!r}: {error}") from error
        process.find()
        return cls(settings, engine, process)

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """Sample `n` completions of one prompt and return them once their weights are proved.

        Calls beyond `max_sequences` wait here, outside the engine, and take a seat in the moment in which one falls
        free; a call counts as one whatever its `n`.

        Args:
            prompt_ids: token ids; never re-tokenised.
            sampling: how to sample.
            n: completions; one that the engine aborted has `finish_reason` `abort`.
            request_id: to abort it by; made up if None.

        Raises:
            EngineError: the engine is dead, holds no pushed weights, lost its hook, disagrees with itself about the
                version of a token, or failed the proof of a version that produced a token.
        """
        async with self._seats:
            if self.updates.broken:
                raise EngineError(f"{self.updates.broken}; restart the generator and push the current weights again.")
            if self.version < 0:
                raise EngineError("the engine holds the weights it started with; push a version before generating.")
            completions = await self._sample(prompt_ids, self._parameters(sampling, n), request_id)
        for completion in completions:
            await self.trust.wait(completion.weight_version)
            self.tokens += len(completion.token_ids)
        return completions

    async def abort(self, request_id: str | None = None) -> int:
        """End one request, or all of them; their completions come back with what they have. Return how many."""
        chosen = [request_id] if request_id is not None and request_id in self._running else []
        if request_id is None:
            chosen = list(self._running)
        if chosen:
            await self._guard(self.engine.abort(chosen))
        return len(chosen)

    async def health(self) -> dict[str, Any]:
        """Return version, requests in flight, tokens so far and the engine core's process id.

        Raises:
            EngineError: the engine is dead.
        """
        await self._guard(self.engine.check_health())
        return {
            "version": self.version,
            "in_flight": len(self._running),
            "tokens": self.tokens,
            "core_pid": self._process.pid,
        }

    async def update_weights(self, manifest: WeightManifest, clear_cache: bool) -> Proof | None:
        """Pause, take the published weights, resume, and prove them on the manifest's canary.

        Requests in flight stay in flight. Over `nccl` and `ipc` this waits for the trainer, which takes part by
        `WeightSender.push` at the same time.

        Args:
            manifest: of the published weights; its canary None skips the proof.
            clear_cache: recompute the key-value cache of running requests under the new weights; otherwise they go on
                with a cache of mixed versions, and what the engine recorded is the only truth about them.

        Raises:
            EngineError: the file is not what was published (the engine goes on with the old weights), the load failed
                or the proof failed (completions with tokens of this version are refused).
        """
        async with self._updating:
            await self.updates.check(manifest)
            self.trust.open(manifest.version)
            try:
                await self.updates.exchange(manifest, clear_cache)
                proof = await self._prove(manifest)
            except BaseException as error:  # a cancelled update must not leave its version open
                self.trust.refuse(manifest.version, str(error) or type(error).__name__)
                if self.updates.broken and self._process.alive():
                    await self.abort()  # generation stays paused: what runs would never end
                raise
            self.trust.accept(manifest.version)
            return proof

    async def canary(self, reference: CanaryReference) -> list[Completion]:
        """Return the engine's greedy next token after each canary prompt, ahead of all waiting requests."""
        parameters = self._parameters(_CANARY_SAMPLING, 1, greedy=True)
        calls = (self._sample(prompt, parameters, None, _CANARY_PRIORITY) for prompt in reference.prompts)
        return [answer for (answer,) in await asyncio.gather(*calls)]

    async def shutdown(self) -> None:
        """Stop the engine and its core process; both are gone when this returns."""
        engine, self.engine = self.engine, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)
            await asyncio.to_thread(self._process.stop)
            # Its destructor shuts it down again, which fails noisily when the interpreter is half gone.
            engine.shutdown = lambda: None

    async def _prove(self, manifest: WeightManifest) -> Proof | None:
        if manifest.canary is None:
            return None
        answers = await self.canary(manifest.canary)
        return prove(manifest.canary, answers, manifest.version, self.settings.tolerance)

    def _parameters(self, sampling: SamplingSpec, n: int, greedy: bool = False) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        return SamplingParams(
            n=n,
            temperature=0.0 if greedy else sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop_token_ids=list(sampling.stop_token_ids),
            seed=sampling.seed,
            logprobs=COLUMNS,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    async def _sample(
        self, prompt_ids: Sequence[int], parameters: Any, request_id: str | None, priority: int = 0
    ) -> list[Completion]:
        name = request_id or f"r{next(self._ids)}"
        prompt: dict[str, Any] = {"prompt_token_ids": [int(token) for token in prompt_ids]}
        if self.settings.prefix_caching:
            prompt["cache_salt"] = self._cache_salt()
        self._running.add(name)
        try:
            found: list[Completion] = await self._guard(self._collect(prompt, parameters, name, priority))
            return found
        finally:
            self._running.discard(name)

    def _cache_salt(self) -> str:
        # Cached blocks outlive an update; a salt keeps those of other weights from being found.
        return f"weights-{self.version}"

    async def _collect(self, prompt: dict[str, Any], parameters: Any, name: str, priority: int) -> list[Completion]:
        last = None
        async for output in self.engine.generate(prompt, parameters, name, priority=priority):
            last = output
        if last is None or len(last.outputs) != parameters.n:
            got = 0 if last is None else len(last.outputs)
            raise EngineError(f"the engine returned {got} of {parameters.n} completions of request {name}.")
        return [read_completion(output) for output in sorted(last.outputs, key=lambda output: output.index)]

    async def _guard(self, call: Awaitable[Any]) -> Any:
        """Await a call of the engine; every failure becomes an `EngineError`."""
        try:
            return await call
        except EngineError:
            raise
        except Exception as error:
            if type(error).__name__ == "EngineDeadError" or not self._process.alive():
                raise EngineError(
                    f"the engine core (process {self._process.pid}) died; restart the generator and push the current "
                    f"weights again."
                ) from error
            raise EngineError(f"the engine refused a call: {error}") from error

    @property
    def dead(self) -> bool:
        """Whether the engine must be restarted: its core is gone, or an update broke off."""
        return self.engine is None or bool(self.updates.broken) or not self._process.alive()
