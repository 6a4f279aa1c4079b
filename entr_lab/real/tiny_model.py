"""The embedded default: a tiny Qwen3 with its own tokenizer, warm-started here in under a minute and cached on disk.

Untied embeddings (an engine's reload of tied ones is error-prone), float32, 232 544 parameters. The cache key is a hash
of the whole recipe; a folder appears in the cache whole or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from entr_lab.errors import EngineError, check_choice, check_range
from entr_lab.real.config_sections import EnvironmentConfig
from entr_lab.real.environments.registry import environment_class, environment_factory
from entr_lab.real.environments.vocabulary import PIECES, FixedVocabulary, save_tokenizer
from entr_lab.real.episode import play
from entr_lab.real.muon import Muon
from entr_lab.real.records import Rollout, SamplingSpec
from entr_lab.real.teacher import TEACHERS, Demonstrations, Teacher
from entr_lab.real.torch_generator import TorchGenerator

__all__ = ["Recipe", "build_model", "cache_folder", "start_reward", "tiny_model"]

_FORMAT: Final = 1
"""Raised whenever the code makes another model from the same recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that the tiny model depends on.

    Args:
        task: of the teacher: `noted-sum` or `calculator`.
        seed: of initial weights and demonstrations.
        teacher: options of the teacher.
        hidden, layers, heads, kv_heads, head_width, feed_forward: sizes of the Qwen3.
        steps, batch: supervised steps and demonstrations in each.
        reliable_share: share of the steps, from the first, that the teacher makes no mistakes in.
        matrix_rate, other_rate: peak learning rates of Muon on the matrices and of Adam on the rest.
        warmup: steps of a linear warm-up; a cosine then takes both rates to a twentieth.
        gate_rollouts: rollouts that the start reward is measured on.
        least_reward: mean reward at the start below which a build is refused; RL does not start from nothing.
    """

    task: str = "noted-sum"
    seed: int = 0
    teacher: dict[str, Any] = field(default_factory=dict)
    hidden: int = 96
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 32
    feed_forward: int = 256
    steps: int = 300
    batch: int = 32
    reliable_share: float = 0.5
    matrix_rate: float = 0.02
    other_rate: float = 3e-3
    warmup: int = 30
    gate_rollouts: int = 512
    least_reward: float = 0.2

    def __post_init__(self) -> None:
        check_choice("task", self.task, TEACHERS)
        for name in (
            "hidden",
            "layers",
            "heads",
            "kv_heads",
            "head_width",
            "feed_forward",
            "steps",
            "batch",
            "gate_rollouts",
        ):
            check_range(name, getattr(self, name), low=1)
        for name in ("matrix_rate", "other_rate"):
            check_range(name, getattr(self, name), low=0, low_open=True)
        for name in ("reliable_share", "least_reward"):
            check_range(name, getattr(self, name), low=0, high=1)

    @property
    def digest(self) -> str:
        """Hash of the recipe, the vocabulary and the format."""
        content = json.dumps([_FORMAT, asdict(self), PIECES], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def make_teacher(self) -> Teacher:
        """Return the teacher."""
        return TEACHERS[self.task](**self.teacher)


Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


def cache_folder() -> Path:
    """Return where built models are kept: `$ENTR_LAB_CACHE`, or `entr-lab` in the user's cache folder."""
    base = os.environ.get("ENTR_LAB_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "entr-lab"


def tiny_model(recipe: Recipe | None = None, *, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the folder of the tiny model; builds it if the cache lacks it.

    Args:
        recipe: what to build.
        cache: folder of the cache.
        progress: for a progress bar.

    Raises:
        EngineError: the start reward is below the recipe's least, so that RL would have nothing to start from.
    """
    from safetensors.torch import save_file

    recipe = recipe or Recipe()
    cache = cache or cache_folder()
    folder = cache / f"tiny-{recipe.task}-{recipe.digest}"
    if (folder / "recipe.json").is_file():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    try:
        model = build_model(recipe, progress)
        model.config.save_pretrained(building)  # type: ignore[union-attr, operator]
        save_file(model.state_dict(), building / "model.safetensors", metadata={"format": "pt"})
        save_tokenizer(building)
        reward = start_reward(model, recipe)
        if not reward >= recipe.least_reward:
            raise EngineError(
                f"the warm-started model solves {reward:.2f} of the tasks, less than {recipe.least_reward:g}: RL would "
                f"have nothing to start from; use more steps or another seed in the recipe."
            )
        content = {**asdict(recipe), "start_reward": reward, "torch": torch.__version__}
        (building / "recipe.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        try:
            os.replace(building, folder)
        except OSError:
            if not (folder / "recipe.json").is_file():  # else another process was faster: both are the same
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


def build_model(recipe: Recipe, progress: Progress | None = None) -> nn.Module:
    """Build and warm-start a model; deterministic in the recipe on one machine.

    Cross-entropy to the teacher's distributions; Muon on the matrices of the layers (three times fewer steps than Adam
    alone, which stays on a plateau before it finds the running sum), Adam on embeddings, head and norms.
    """
    model = _fresh(recipe)
    model.train()
    inner = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    chosen = {id(p) for p in inner}
    outer = [p for p in model.parameters() if id(p) not in chosen]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(inner, lr=recipe.matrix_rate),
        torch.optim.Adam(outer, lr=recipe.other_rate, betas=(0.9, 0.98)),
    ]
    peaks = (recipe.matrix_rate, recipe.other_rate)
    random = np.random.default_rng((recipe.seed, 0x7EAC))
    teacher = recipe.make_teacher()
    reliable = teacher.reliable()
    for step in range(recipe.steps):
        drawn = (reliable if step < recipe.reliable_share * recipe.steps else teacher).draw(random, recipe.batch)
        _imitation_loss(model, drawn).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * _schedule(step, recipe)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if progress:
            progress(step + 1, recipe.steps)
    return model.eval()


def start_reward(model: nn.Module, recipe: Recipe) -> float:
    """Return the mean reward of freshly sampled rollouts of the recipe's task."""
    config = EnvironmentConfig(name=recipe.task)
    build, codec = environment_class(recipe.task), FixedVocabulary()
    make = environment_factory(config, codec)
    generator = TorchGenerator(model, seed=recipe.seed)

    async def play_all() -> list[Rollout]:
        games = (
            play(make(), build.generate(recipe.seed, index), generator, SamplingSpec(), max_tokens=64, max_turns=8)
            for index in range(recipe.gate_rollouts)
        )
        return await asyncio.gather(*games)

    return float(np.mean([rollout.reward for rollout in asyncio.run(play_all())]))


def _fresh(recipe: Recipe) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(PIECES),
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.head_width,
        intermediate_size=recipe.feed_forward,
        tie_word_embeddings=False,
        max_position_embeddings=512,
        bos_token_id=PIECES.index("<bos>"),
        eos_token_id=PIECES.index("<eos>"),
        pad_token_id=PIECES.index("<pad>"),
        architectures=["Qwen3ForCausalLM"],  # engines choose their model class by this
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model: nn.Module = Qwen3ForCausalLM(config)
    return model


def _schedule(step: int, recipe: Recipe) -> float:
    rise = min(1.0, (step + 1) / max(1, recipe.warmup))
    fall = 0.05 + 0.95 * (1 + np.cos(np.pi * step / recipe.steps)) / 2
    return float(rise * fall)


def _imitation_loss(model: Any, drawn: Demonstrations) -> Tensor:
    logits = model(input_ids=torch.from_numpy(drawn.ids[:, :-1]), use_cache=False).logits
    wanted = torch.from_numpy(drawn.targets[:, :-1])
    learnt = wanted.sum(-1) > 0
    weights = torch.from_numpy(drawn.weights[:, :-1])[learnt]
    loss: Tensor = -((wanted[learnt] * logits[learnt].log_softmax(-1)).sum(-1) * weights).mean()
    return loss
