"""The configuration of a real run: one TOML file, validated before any process starts.

Light to import: no torch until a method is resolved.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from entr_lab.errors import ConfigError
from entr_lab.pipeline import Admission, Mode, PipelineConfig
from entr_lab.real.config_sections import (
    AsynchronyConfig,
    AttributionConfig,
    CheckpointConfig,
    ClusterConfig,
    DataConfig,
    EnvironmentConfig,
    EvaluationConfig,
    LogConfig,
    MethodConfig,
    ModelConfig,
    RolloutConfig,
    Section,
    TrainerConfig,
)

__all__ = ["RunConfig"]


class RunConfig(Section):
    """The whole configuration."""

    seed: int = Field(default=0, ge=0, lt=1 << 32)
    model: ModelConfig = ModelConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    asynchrony: AsynchronyConfig = AsynchronyConfig()
    method: MethodConfig = MethodConfig()
    trainer: TrainerConfig = TrainerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    attribution: AttributionConfig = AttributionConfig()
    cluster: ClusterConfig = ClusterConfig()

    @property
    def admission(self) -> Admission:
        """The staleness bounds, in the pipeline's words.

        Raises:
            ConfigError: the bounds can never be met.
        """
        a, k = self.asynchrony, self.trainer.steps_per_batch
        if a.mode is Mode.SYNC:
            return Admission.sync(updates_per_batch=k)
        if a.mode is Mode.ONE_STEP:
            return Admission.one_step(updates_per_batch=k)
        if a.mode is Mode.EXACT:
            if k != 1:
                raise ConfigError(
                    f"mode exact needs one optimiser step per batch, got mini_batches × epochs = {k}: with more, one "
                    f"batch would have several lags; set both to 1."
                )
            return Admission.exact(a.max_inter, a.max_intra)
        return Admission.asynchronous(
            a.max_inter, a.max_intra, policy=a.policy, on_update=a.on_update, updates_per_batch=k
        )

    @property
    def pipeline(self) -> PipelineConfig:
        """The settings of the pipeline."""
        a, r = self.asynchrony, self.rollout
        return PipelineConfig(
            admission=self.admission,
            batch_groups=r.batch_groups,
            group_size=r.group_size,
            min_rollouts=a.min_rollouts,
            order=a.order,
            drop_zero_variance=a.drop_zero_variance,
            deadline=a.deadline,
            max_in_flight=a.max_in_flight,
            buffer_groups=a.buffer_groups,
            max_attempts=a.max_attempts,
        )

    @property
    def trainer_gpus(self) -> int:
        """GPUs left to the trainer, one a process."""
        return self.trainer.processes if self.cluster.gpus_per_node else 0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        from entr_lab.real.config_checks import check_possible

        check_possible(self)
        return self
