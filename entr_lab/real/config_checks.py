"""Combinations of settings that cannot work, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entr_lab.errors import ConfigError
from entr_lab.pipeline import Mode

if TYPE_CHECKING:
    from entr_lab.real.config import RunConfig

__all__ = ["check_possible"]

_TINY_TASKS = ("noted-sum", "calculator")


def check_possible(config: RunConfig) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigError: two settings exclude each other; the message says which and why.
    """
    _check_method(config)
    _check_rollouts(config)
    _check_resources(config)
    _ = config.pipeline  # building it checks the bounds and sizes


def _check_method(config: RunConfig) -> None:
    method = config.method.build()
    mode = config.asynchrony.mode
    if method.synchronous and mode is not Mode.SYNC:
        raise ConfigError(
            f"method {config.method.name!r} takes the ratio as 1, which is true only of rollouts of the current "
            f"weights, but asynchrony.mode is {mode.value!r}; set it to 'sync', or use method 'async-grpo'."
        )
    if method.synchronous and config.trainer.steps_per_batch > 1:
        raise ConfigError(
            f"method {config.method.name!r} takes the ratio as 1, but after the first of "
            f"{config.trainer.steps_per_batch} optimiser steps a batch is stale; set mini_batches = epochs = 1."
        )


def _check_rollouts(config: RunConfig) -> None:
    rollout, trainer = config.rollout, config.trainer
    if config.model.path == "tiny" and config.environment.name not in _TINY_TASKS:
        raise ConfigError(
            f"model 'tiny' is warm-started for {' and '.join(_TINY_TASKS)} and knows no other words, but "
            f"environment.name is {config.environment.name!r}; set model.path to a language model."
        )
    if rollout.group_size == 1:
        raise ConfigError(
            "rollout.group_size = 1 makes every advantage 0, since a reward is compared with those of its own group; "
            "set it to 2 or more."
        )
    if trainer.mini_batches > rollout.batch_groups:
        raise ConfigError(
            f"trainer.mini_batches = {trainer.mini_batches} exceeds rollout.batch_groups = {rollout.batch_groups}: "
            f"mini-batches are cut by whole groups; lower one or raise the other."
        )
    if config.evaluation.every and config.data.path and not config.evaluation.path:
        raise ConfigError(
            "evaluation.every asks for held-out prompts, but data.path is one file for training; name another one in "
            "evaluation.path."
        )
    smallest = rollout.batch_groups // trainer.mini_batches * rollout.group_size
    if smallest < trainer.processes:
        raise ConfigError(
            f"an optimiser step has as few as {smallest} rollouts, too few for trainer.processes = "
            f"{trainer.processes}, each of which needs one; use larger batches or fewer processes."
        )


def _check_resources(config: RunConfig) -> None:
    cluster, rollout = config.cluster, config.rollout
    if cluster.nodes > 1 and cluster.ray_address == "local":
        raise ConfigError(
            f"cluster.nodes = {cluster.nodes} needs a Ray cluster that is already running, but cluster.ray_address is "
            f"'local'; set it to 'auto' or host:port."
        )
    if not cluster.gpus_per_node:
        if config.model.attention == "flash_attention_2":
            raise ConfigError("model.attention = 'flash_attention_2' needs GPUs, but cluster.gpus_per_node is 0.")
        if cluster.tensor_parallel > 1:
            raise ConfigError("cluster.tensor_parallel > 1 needs GPUs, but cluster.gpus_per_node is 0.")
        return
    if cluster.tensor_parallel > cluster.gpus_per_node:
        raise ConfigError(
            f"cluster.tensor_parallel = {cluster.tensor_parallel} exceeds the {cluster.gpus_per_node} GPUs of a node: "
            f"one generator does not span nodes."
        )
    wanted = config.trainer_gpus + rollout.generators * cluster.tensor_parallel
    there = cluster.nodes * cluster.gpus_per_node
    if wanted > there:
        raise ConfigError(
            f"the trainer takes {config.trainer_gpus} GPUs and {rollout.generators} generators take "
            f"{rollout.generators * cluster.tensor_parallel}, together {wanted}, but the cluster has {there}; lower "
            f"trainer.processes or rollout.generators."
        )
