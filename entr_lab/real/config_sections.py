"""The sections of a real run's configuration: every field has a default, and the defaults are the laptop demo.

Light to import: no torch until a method is resolved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from entr_lab.pipeline import Mode, OnUpdate, Order, Policy

if TYPE_CHECKING:
    from entr_lab.objective import Method

__all__ = [
    "TINY",
    "AsynchronyConfig",
    "AttributionConfig",
    "CheckpointConfig",
    "ClusterConfig",
    "DataConfig",
    "EnvironmentConfig",
    "EvaluationConfig",
    "LogConfig",
    "MethodConfig",
    "ModelConfig",
    "RolloutConfig",
    "Section",
    "TrainerConfig",
]

TINY = "tiny"
"""Value of `model.path` that stands for the model which the package builds itself."""

_GREATEST = 1 << 53  # float64, in which rates are computed, tells no greater whole numbers apart


class Section(BaseModel):
    """Base of all sections: unknown keys, NaN and wrong types are refused; a loaded config never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _sensible_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic takes true for 1.
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise PydanticCustomError("truth_value", "a truth value is not what belongs here")
        if isinstance(value, int) and abs(value) > _GREATEST:
            raise PydanticCustomError("greatest", f"a whole number should be at most 2**53 = {_GREATEST}")
        return value


class ModelConfig(Section):
    """Which model is trained."""

    path: str = Field(default=TINY, min_length=1)
    """`tiny`, or the folder or hub name of a Hugging Face causal language model."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the trainer's arithmetic; its weights and optimiser are float32 always."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    trust_remote_code: bool = False
    """Run Python code that comes with the model; off unless asked for."""


class EnvironmentConfig(Section):
    """The task, and what its tools cost."""

    name: str = Field(default="noted-sum", min_length=1)
    """A built-in name, or `module:Class` of your own."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    max_turns: int = Field(default=8, ge=1)
    """Calls of the model per rollout."""
    tool_latency: float = Field(default=0.0, ge=0)
    """Seconds that a tool call takes on average, added to what it really takes."""
    tool_latency_sigma: float = Field(default=0.0, ge=0, le=3)
    """Spread of a log-normal latency; 0 makes it constant."""
    tool_timeout: float = Field(default=30.0, gt=0)
    """Seconds after which a tool call counts as failed; the model is told so."""
    tool_max_chars: int = Field(default=4096, ge=16)
    """Longer answers of a tool are cut."""


class DataConfig(Section):
    """Where prompts come from."""

    path: str = ""
    """A .jsonl or .parquet file; empty: prompts that the environment generates without end."""
    prompt_field: str = "prompt"
    answer_field: str = "ground_truth"
    """May be dotted: `reward_model.ground_truth`."""
    source_field: str = "data_source"
    shuffle: bool = True
    """A new order in every epoch, from the seed."""


class RolloutConfig(Section):
    """Generation."""

    batch_groups: int = Field(default=8, ge=1)
    """Prompts per training batch."""
    group_size: int = Field(default=8, ge=1)
    """Rollouts per prompt."""
    temperature: float = Field(default=1.0, gt=0, le=10)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0: off."""
    max_tokens: int = Field(default=64, ge=1)
    """Tokens after the prompt, tool answers included."""
    generators: int = Field(default=1, ge=1)
    """Engines."""
    engine_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    keep_kv_cache: bool = True
    """Keep the key-value cache of running rollouts across a weight update, or recompute it."""
    kv_cache_mib: int = Field(default=64, ge=1)
    """Cache of one engine on CPU; on GPU the engine takes `gpu_memory_utilization`."""
    gpu_memory_utilization: float = Field(default=0.85, gt=0, lt=1)
    own_cpu: bool = True
    """On CPU, keep each engine on a CPU that its generator claims, where there are two to eight (docs/training.md)."""
    max_sequences: int = Field(default=64, ge=1, le=16384)
    """Rollouts that one engine runs at a time."""
    queued: int = Field(default=16, ge=0, le=16384)
    """Rollouts beside them that wait in the engine's process, so that a seat that falls free is taken at once; none in
    mode exact, which begins them by version."""


class AsynchronyConfig(Section):
    """How far generation may run ahead of training; see docs/pipeline.md."""

    mode: Mode = Mode.ASYNC
    max_inter: int = Field(default=4, ge=0)
    max_intra: int = Field(default=2, ge=0)
    policy: Policy = Policy.WAIT
    on_update: OnUpdate = OnUpdate.HOLD
    order: Literal[Order.FIFO, Order.FRESHEST, Order.OLDEST] = Order.FIFO
    drop_zero_variance: bool = False
    """Drop groups whose rewards are all equal before they are trained on."""
    min_rollouts: int | None = Field(default=None, ge=1)
    deadline: float | None = Field(default=None, gt=0)
    """Seconds until an unfinished group is settled with what it has."""
    max_in_flight: int | None = Field(default=None, ge=1)
    buffer_groups: int | None = Field(default=None, ge=1)
    max_attempts: int = Field(default=3, ge=1)


class MethodConfig(Section):
    """The objective; everything but the rule may be set for a whole comparison."""

    name: str = "entr"
    """A method, with hyper-parameters if wanted: `entr(tau=1.6,eps=0.1)`."""
    surrogate: Literal["plain-ratio", "ppo-clip"] | None = None
    denominator: Literal["token-mean", "token-mean-kept", "seq-mean-token-mean", "seq-mean-token-sum"] | None = None
    advantage: Literal["grpo", "dr-grpo"] | None = None

    def build(self) -> Method:
        """Return the method.

        Raises:
            ConfigError: no such method, or a hyper-parameter is wrong.
        """
        from entr_lab.objective import Advantage, Denominator, Reduction, make_surrogate, parse_method

        return parse_method(self.name).with_setting(
            surrogate=make_surrogate(self.surrogate) if self.surrogate else None,
            reduction=Reduction(denominator=Denominator(self.denominator)) if self.denominator else None,
            advantage=Advantage(self.advantage) if self.advantage else None,
        )


class TrainerConfig(Section):
    """Optimisation."""

    batches: int = Field(default=160, ge=1)
    """Batches to train on."""
    mini_batches: int = Field(default=1, ge=1)
    """Optimiser steps that one pass over a batch is cut into, by whole groups."""
    epochs: int = Field(default=1, ge=1)
    """Passes over a batch."""
    learning_rate: float = Field(default=3e-4, gt=0, le=1)
    warmup_steps: int = Field(default=0, ge=0)
    """Optimiser steps of a linear warm-up."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    micro_batch_tokens: int = Field(default=8192, ge=16)
    """Tokens, prompts included, of one forward pass."""
    activation_checkpointing: bool = False
    processes: int = Field(default=1, ge=1)
    """Training processes; more than one shard the model (FSDP2)."""

    @property
    def steps_per_batch(self) -> int:
        """Optimiser steps, and so weight versions, that one batch is worth."""
        return self.mini_batches * self.epochs


class EvaluationConfig(Section):
    """Evaluation with the newest weights, outside training: `evaluations.jsonl`."""

    every: int = Field(default=0, ge=0)
    """Batches between evaluations, with one more at the beginning and one at the end; 0: none."""
    rollouts: int = Field(default=128, ge=1)
    """Held-out prompts, one rollout each, the same in every evaluation."""
    path: str = ""
    """File of held-out prompts, with the fields of `data`; empty: others of those that the environment generates."""


class CheckpointConfig(Section):
    """What is kept for a resume."""

    every: int = Field(default=20, ge=0)
    """Batches between checkpoints; 0: none but the last."""
    keep: int = Field(default=2, ge=1)


class LogConfig(Section):
    """What is written while the run goes on; JSONL metrics and the event log are always on."""

    tensorboard: bool = True
    traces: bool = True
    """Write every rollout as a trace."""
    tracker: Literal["none", "wandb", "trackio"] = "none"
    project: str = "entr-lab"


class AttributionConfig(Section):
    """Splitting δ into mismatch, intra and inter parts on a probe."""

    every: int = Field(default=0, ge=0)
    """Batches between probes; 0: none. Keeps max_inter + max_intra + 1 versions of the weights in memory."""
    sequences: int = Field(default=4, ge=1)
    """Rollouts of the batch that are scored again."""


class ClusterConfig(Section):
    """Where the processes run."""

    ray_address: str = Field(default="local", min_length=1)
    """`local` starts Ray on this machine, bound to loopback; `auto` or host:port joins a cluster."""
    nodes: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=0, ge=0)
    """0: everything runs on CPU."""
    tensor_parallel: int = Field(default=1, ge=1)
    """GPUs of one generator."""
