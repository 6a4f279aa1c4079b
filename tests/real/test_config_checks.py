"""Every combination that cannot work is refused, with its reason."""

import pytest

from entr_lab.errors import ConfigError
from entr_lab.real.config_io import load_config

GPUS = ("cluster.gpus_per_node=8", "model.path=m")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["method.name=sync-grpo"], "true only of rollouts of the current weights"),
        (["method.name=sync-grpo", "asynchrony.mode=sync", "trainer.epochs=2"], "after the first of 2"),
        (["environment.name=search"], "knows no other words"),
        (["rollout.group_size=1"], "makes every advantage 0"),
        (["trainer.mini_batches=9", "asynchrony.max_inter=20"], "cut by whole groups"),
        (["trainer.processes=65"], "too few for trainer.processes"),
        (["asynchrony.mode=exact", "trainer.epochs=2"], "one optimiser step per batch"),
        (["trainer.epochs=6"], "can never be met"),
        (["asynchrony.max_inter=0", "asynchrony.max_intra=0"], "no room to overlap"),
        (["asynchrony.min_rollouts=9"], "min_rollouts"),
        (["cluster.nodes=2"], "already running"),
        (["model.attention=flash_attention_2"], "needs GPUs"),
        (["cluster.tensor_parallel=2"], "needs GPUs"),
        ([*GPUS, "cluster.tensor_parallel=16"], "does not span nodes"),
        ([*GPUS, "trainer.processes=4", "rollout.generators=5"], "together 9, but the cluster has 8"),
    ],
)
def test_refused(settings, reason):
    """The message names both settings and the reason."""
    with pytest.raises(ConfigError, match=reason):
        load_config(None, settings)


@pytest.mark.parametrize(
    "settings",
    [
        ["method.name=sync-grpo", "asynchrony.mode=sync"],
        ["environment.name=search", "model.path=m"],
        ["environment.name=calculator"],
        [*GPUS, "trainer.processes=4", "rollout.generators=4"],
        ["cluster.nodes=2", "cluster.ray_address=auto"],
        ["asynchrony.mode=exact", "asynchrony.max_inter=22", "asynchrony.max_intra=8"],
    ],
)
def test_allowed(settings):
    """The neighbours of the refusals pass."""
    load_config(None, settings)
