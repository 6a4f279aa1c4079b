"""Real engines for the tests marked `real`: a tiny random Qwen3, a loop in a thread, and the weights pushed into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import torch

from entr_lab.real.canary import CanaryReference, canary_prompts, canary_reference, model_logits
from entr_lab.real.engine_settings import EngineSettings
from entr_lab.real.generator import Generator
from entr_lab.real.proof import Proof
from entr_lab.real.weight_transfer import SharedMemorySender, WeightManifest

VOCABULARY = 64
PROMPTS = canary_prompts(VOCABULARY, count=2)


def make_model(folder: Path, *, tied: bool, seed: int = 0) -> Any:
    """Build a random two-layer Qwen3 with a sharp, uneven distribution, and save it."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # the least that vLLM's attention on CPU takes
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=tied,
    )
    model = Qwen3ForCausalLM(config).float().eval()
    model.save_pretrained(folder)
    return model


class Loop:
    """An event loop in a thread, so that one engine serves every test of a session."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def __call__(self, call: Coroutine[Any, Any, Any], timeout: float = 300) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(timeout)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()


class LiveEngine:
    """A running engine, the model whose weights it should hold, and the way between them."""

    def __init__(self, run: Loop, model: Any, folder: Path, **settings: Any) -> None:
        self.run = run
        self.model = model
        self.sender = SharedMemorySender()
        self.version = -1
        options: dict[str, Any] = {"dtype": "float32", "kv_cache_mib": 64} | settings
        self.generator = run(Generator.start(EngineSettings(model=str(folder), **options)))

    def perturb(self, scale: float = 0.2, seed: int | None = None) -> None:
        """Move every weight of the model."""
        random = torch.Generator().manual_seed(self.version + 100 if seed is None else seed)
        with torch.no_grad():
            for tensor in self.model.parameters():
                tensor.mul_(1 + scale * torch.randn(tensor.shape, generator=random))

    def publish(self, canary: bool = True, prompts: Sequence[Sequence[int]] = PROMPTS) -> WeightManifest:
        """Publish the model's weights under the next version."""
        self.version += 1
        reference: CanaryReference | None = None
        if canary:
            reference = canary_reference(model_logits(self.model), prompts)
        return self.sender.publish(self.model.state_dict(), self.version, reference)

    async def update(self, *, clear_cache: bool = True, canary: bool = True) -> Proof | None:
        """Push the model's weights as the next version."""
        manifest = self.publish(canary)
        try:
            return await self.generator.update_weights(manifest, clear_cache)
        finally:
            self.sender.release(manifest)

    def push(self, *, clear_cache: bool = True, canary: bool = True) -> Proof | None:
        """The same from outside the loop."""
        return self.run(self.update(clear_cache=clear_cache, canary=canary))

    def close(self) -> None:
        self.run(self.generator.shutdown())
        self.sender.close()
