"""The three parts of δ, on rollouts whose every cause is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from entr_lab.errors import ProtocolError
from entr_lab.real.attribution import ATTRIBUTION_DOCS, VersionStore, attribute
from entr_lab.real.scoring import Scorer

from .fakes import ToyModel, toy_rollouts


def store_of(*versions, capacity=10):
    """A store whose version v is a toy model of seed v."""
    store = VersionStore(capacity)
    for version in versions:
        store.add(version, ToyModel(seed=version).state_dict())
    return store


def logp_of(version, rollout):
    """log π of the trainable tokens under a version, by the model's own logits."""
    ids = torch.from_numpy(np.concatenate([rollout.prompt_ids, rollout.token_ids]).astype(np.int64))
    with torch.no_grad():
        logits = ToyModel(seed=version)(input_ids=ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1]
    logp = logits.log_softmax(-1).gather(-1, ids[len(rollout.prompt_ids) :, None])[:, 0].numpy()
    return logp[rollout.trainable]


def probe(versions, error=0.0):
    """One rollout per list of versions, whose tokens were sampled by exactly these, recorded with an error."""
    made = []
    for rollout in (r for group in toy_rollouts(groups=2, context=False) for r in group):
        n = len(rollout.token_ids)
        own = np.sort(np.resize(versions, n)).astype(np.int64)
        logp_mu = np.full(n, np.nan, dtype=np.float32)
        logp_mu[rollout.trainable] = [logp_of(int(v), rollout)[i] - error for i, v in enumerate(own[rollout.trainable])]
        made.append(replace(rollout, weight_version=own, logp_mu=logp_mu))
    return made


def parts(versions, target, error=0.0):
    """Attribution of a probe."""
    return attribute(Scorer(ToyModel(seed=99)), store_of(0, 1, 2, 3), probe(versions, error), target)


def test_each_cause_alone():
    """Fresh and exact: nothing. A recording error: mismatch. An old version: inter. A switch: intra."""
    fresh, wrong, old, switched = parts([2], 2), parts([2], 2, 0.25), parts([0], 2), parts([0, 2], 2)

    for part in (fresh.mismatch, fresh.intra, fresh.inter, wrong.intra, wrong.inter, old.intra, switched.inter):
        np.testing.assert_allclose(part, 0, atol=1e-5)
    np.testing.assert_allclose(wrong.mismatch, 0.25, atol=1e-5)
    np.testing.assert_allclose(old.mismatch, 0, atol=1e-5)
    assert np.abs(old.inter).mean() > 0.1
    assert np.abs(switched.intra).max() > 0.1
    assert (switched.intra == 0).any()


def test_the_parts_add_up():
    """Their sum is δ from the trainer's log-prob and the recorded one, token by token."""
    found = parts([0, 1, 2], 3, error=0.1)
    rollouts = probe([0, 1, 2], 0.1)
    delta = np.concatenate([logp_of(3, r) - r.logp_mu[r.trainable] for r in rollouts])

    np.testing.assert_allclose(found.delta, delta, atol=2e-5)
    metrics = found.metrics
    assert set(metrics) == set(ATTRIBUTION_DOCS)
    assert metrics["delta_rms"] == pytest.approx(np.sqrt(np.mean(delta**2)), rel=1e-4)
    squares = sum(metrics[f"{name}_rms"] ** 2 for name in ("mismatch", "intra", "inter"))
    assert 1 - squares / metrics["delta_rms"] ** 2 == pytest.approx(metrics["cross_share"])


def test_rollouts_of_forgotten_versions_are_left_out():
    """And an empty probe has no numbers."""
    scorer, store = Scorer(ToyModel()), store_of(1, 2, 3)
    rollouts = [*probe([0]), *probe([2])]

    assert len(attribute(scorer, store, rollouts, 3).delta) == sum(int(r.trainable.sum()) for r in probe([2]))
    empty = attribute(scorer, store, probe([0]), 3).metrics
    assert empty["probe_tokens"] == 0
    assert np.isnan(empty["delta_rms"])
    with pytest.raises(ProtocolError, match="version 7"):
        attribute(scorer, store, rollouts, 7)


def test_unrecorded_tokens_are_left_out():
    """A NaN of the engine has no cause to be found."""
    rollouts = probe([2])
    rollouts[0].logp_mu[0] = np.nan
    found = attribute(Scorer(ToyModel()), store_of(2, 3), rollouts, 3)

    assert np.isfinite(found.delta).all()
    assert len(found.delta) == sum(int(r.trainable.sum()) for r in rollouts) - 1


def test_the_scorer_is_left_as_it_was():
    """Its weights are the trainer's."""
    scorer = Scorer(ToyModel(seed=99))
    before = {name: value.clone() for name, value in scorer.state_dict().items()}
    attribute(scorer, store_of(2, 3), probe([2]), 3)

    assert all(torch.equal(value, before[name]) for name, value in scorer.state_dict().items())


def test_the_store_forgets_the_oldest():
    """Capacity bounds the memory; versions only rise."""
    store = store_of(0, 1, 2, 3, capacity=2)

    assert store.versions == [2, 3]
    with pytest.raises(ProtocolError, match="only rise"):
        store.add(3, {})
