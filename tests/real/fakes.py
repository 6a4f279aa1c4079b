"""Stand-ins for the engine and the weight transfer: a small torch model that is sampled token by token on the CPU."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn

from entr_lab.real.records import Completion, Rollout, SamplingSpec


class ToyBody(nn.Module):
    """Embedding, two attention blocks, a norm: causal inside each packed sequence."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(64, width)
        self.layers = nn.ModuleList(ToyLayer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, use_cache: bool = False
    ) -> SimpleNamespace:
        length = input_ids.shape[1]
        if position_ids is None:
            position_ids = torch.arange(length)[None]
        segment = (position_ids == 0).cumsum(-1)
        allowed = (segment[:, :, None] == segment[:, None, :]) & torch.ones(length, length).tril().bool()
        hidden = self.embedding(input_ids) + self.places(position_ids)
        for layer in self.layers:
            hidden = layer(hidden, allowed)
        return SimpleNamespace(last_hidden_state=self.norm(hidden))


class ToyLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        # A bias of the keys has no effect, hence a gradient of pure rounding, which Adam would blow up.
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: Tensor, allowed: Tensor) -> Tensor:
        q, k, v = self.qkv(hidden).chunk(3, dim=-1)
        hidden = hidden + self.out(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed))
        return hidden + self.down(torch.tanh(self.up(hidden)))


class ToyModel(nn.Module):
    """What the trainer needs of a Hugging Face causal language model, without transformers."""

    def __init__(self, vocabulary: int = 12, width: int = 16, layers: int = 2, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = ToyBody(vocabulary, width, layers)
            self.lm_head = nn.Linear(width, vocabulary, bias=False)

    @property
    def base_model(self) -> ToyBody:
        return self.model

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def forward(self, input_ids: Tensor, use_cache: bool = False) -> SimpleNamespace:
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))


class FakeGenerator:
    """Samples from a torch model with full recomputation; weights may be loaded between any two tokens.

    Args:
        model: anything with `model(input_ids=…).logits`; copied.
        seed: of the sampling.
        dtype: bfloat16 gives the mismatch of a real engine.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        seed: int = 0,
        version: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model = copy.deepcopy(model).to(dtype).eval()
        self.version = version
        self.calls = 0
        self._random = torch.Generator().manual_seed(seed)

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        """Take new weights; running generations go on under them, their past is recomputed."""
        self.model.load_state_dict(weights)
        self.version = version

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        """Sample `n` completions, giving way to other tasks before each token."""
        return [await self._generate(prompt_ids, sampling) for _ in range(n)]

    async def _generate(self, prompt_ids: Sequence[int], sampling: SamplingSpec) -> Completion:
        self.calls += 1
        ids = list(prompt_ids)
        rows: list[tuple[int, float, float, float, int]] = []
        reason = "length"
        while len(rows) < sampling.max_tokens:
            await asyncio.sleep(0)
            rows.append(self._sample(ids, sampling.temperature))
            ids.append(rows[-1][0])
            if rows[-1][0] in sampling.stop_token_ids:
                reason = "stop"
                break
        token, logp, entropy, collision, version = zip(*rows, strict=True)
        return Completion(
            np.array(token, dtype=np.int32),
            np.array(logp, dtype=np.float32),
            np.array(entropy, dtype=np.float32),
            np.array(collision, dtype=np.float32),
            np.array(version, dtype=np.int64),
            reason,
        )

    @torch.no_grad()
    def _sample(self, ids: list[int], temperature: float) -> tuple[int, float, float, float, int]:
        logits = self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float() / temperature
        logp = logits.log_softmax(-1)
        probs = logp.exp()
        token = int(torch.multinomial(probs, 1, generator=self._random))
        entropy = float(-(probs * logp).sum())
        return token, float(logp[token]), max(0.0, entropy), float(probs.square().sum()), self.version


class ScriptedGenerator:
    """Says what it is told to, one completion a call; behaviour columns are constants."""

    def __init__(self, *completions: Sequence[int], reason: str = "stop") -> None:
        self.prompts: list[list[int]] = []
        self.samplings: list[SamplingSpec] = []
        self._completions = list(completions)
        self._reason = reason

    async def generate(
        self, prompt_ids: Sequence[int], sampling: SamplingSpec, n: int = 1, request_id: str | None = None
    ) -> list[Completion]:
        self.prompts.append(list(prompt_ids))
        self.samplings.append(sampling)
        ids = np.array(self._completions.pop(0), dtype=np.int32)
        column = np.full(len(ids), 0.5, dtype=np.float32)
        version = np.full(len(ids), len(self.prompts), dtype=np.int64)
        return [Completion(ids, -column, column, column, version, self._reason)]


class FakeTransfer:
    """Pushes weights into generators at once."""

    def __init__(self, generators: Sequence[FakeGenerator]) -> None:
        self.generators = generators
        self.pushed: list[int] = []

    async def push(self, weights: dict[str, Tensor], version: int) -> None:
        for generator in self.generators:
            generator.load(weights, version)
        self.pushed.append(version)


def toy_rollouts(
    groups: int = 3,
    size: int = 4,
    *,
    vocabulary: int = 12,
    version: int = 0,
    spread: int = 0,
    noise: float = 1.5,
    model: nn.Module | None = None,
    seed: int = 0,
    context: bool = True,
) -> list[list[Rollout]]:
    """Groups of random rollouts of uneven length; `logp_mu` is the model's plus noise, versions fall back `spread`."""
    random = np.random.default_rng(seed)
    model = model or ToyModel(vocabulary)
    made = []
    for group in range(groups):
        prompt = random.integers(0, vocabulary, random.integers(2, 6)).astype(np.int32)
        made.append(
            [_rollout(random, model, prompt, group, vocabulary, version, spread, noise, context) for _ in range(size)]
        )
    return made


def _rollout(
    random: np.random.Generator,
    model: nn.Module,
    prompt: np.ndarray,
    group: int,
    vocabulary: int,
    version: int,
    spread: int,
    noise: float,
    context: bool,
) -> Rollout:
    n = int(random.integers(4, 12))
    ids = random.integers(0, vocabulary, n).astype(np.int32)
    trainable = np.ones(n, dtype=bool)
    if context:
        trainable[2:4] = False
    with torch.no_grad():
        row = torch.from_numpy(np.concatenate([prompt, ids]).astype(np.int64))[None]
        logp = model(input_ids=row).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    chosen = logp.gather(-1, row[0, len(prompt) :, None])[:, 0].numpy()
    probs = logp.exp()
    hidden = np.where(trainable, 1.0, np.nan).astype(np.float32)
    return Rollout(
        prompt_ids=prompt,
        token_ids=ids,
        trainable=trainable,
        logp_mu=np.minimum(chosen + noise * random.standard_normal(n).astype(np.float32), 0.0) * hidden,
        entropy_mu=-(probs * logp).sum(-1).numpy() * hidden,
        collision_mu=probs.square().sum(-1).numpy() * hidden,
        weight_version=np.sort(version - random.integers(0, spread + 1, n)).astype(np.int64),
        turn=np.where(np.arange(n) < 4, 0, 1).astype(np.int32),
        reward=float(random.integers(0, 2)),
        sample={"id": f"sample-{group}", "source": "toy"},
    )
