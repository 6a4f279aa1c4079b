"""Every metric is documented, and the lags are the paper's."""

from dataclasses import replace

import numpy as np
import pytest

from entr_lab.diagnostics import METRICS
from entr_lab.objective import get_method
from entr_lab.real.config_sections import TrainerConfig
from entr_lab.real.metrics import METRIC_DOCS
from entr_lab.real.trainer import Trainer

from .fakes import ToyModel, toy_rollouts


def metrics_of(groups, version=0, **settings):
    """Metrics of one update."""
    trainer = Trainer(ToyModel(), TrainerConfig(**settings), version=version)
    return trainer.update(groups, version, get_method("entr")).metrics


def test_names_are_documented_and_documents_are_true():
    """The metrics are exactly the documented ones, and all are plain numbers."""
    metrics = metrics_of(toy_rollouts())

    assert metrics.keys() == METRIC_DOCS.keys() | METRICS.keys()
    assert all(type(value) is float for value in metrics.values())


def test_lags_of_known_versions():
    """inter = target − last, intra = last − first, staleness per trainable token."""
    groups = toy_rollouts(groups=1, size=2, context=False)
    versions = (np.array([1, 2, 4]), np.array([3]))
    groups = [
        [
            replace(r, weight_version=np.sort(np.resize(v, len(r.token_ids))).astype(np.int64))
            for r, v in zip(groups[0], versions, strict=True)
        ]
    ]
    metrics = metrics_of(groups, version=6)

    assert metrics["inter_lag_mean"] == pytest.approx((2 + 3) / 2)
    assert metrics["intra_lag_mean"] == pytest.approx((3 + 0) / 2)
    assert metrics["staleness_max"] == 5
    every = np.concatenate([r.weight_version for r in groups[0]])
    assert metrics["staleness_mean"] == pytest.approx(float((6 - every).mean()))


def test_means_over_optimiser_steps():
    """With two mini-batches the rule's metrics are the means of both."""
    groups = toy_rollouts(groups=4)
    both = metrics_of(groups, mini_batches=2, learning_rate=1e-12)
    halves = [metrics_of(part, learning_rate=1e-12) for part in (groups[:2], groups[2:])]

    for name in ("masked_frac", "all_m2", "loss", "entropy_pi", "masked_sequence_frac"):
        assert both[name] == pytest.approx(np.mean([half[name] for half in halves]), rel=1e-4, abs=1e-6), name
