"""The trainer's rules and theory's boundaries decide alike on random batches, away from the boundary's last digits."""

import numpy as np
import pytest
import torch

from entr_lab.rules import make_rule
from entr_lab.theory import boundary as bd
from entr_lab.tokens import TokenBatch


def random_columns(seed, N=20_000):
    rng = np.random.default_rng(seed)
    logp_mu = -rng.exponential(2.0, N) - 1e-4
    delta = rng.standard_normal(N) * rng.choice([0.05, 0.5, 2.0], N)
    logp_pi = np.minimum(logp_mu + delta, -1e-6)
    H, G = rng.exponential(0.7, N), rng.random(N)
    return logp_mu.astype(np.float32), logp_pi.astype(np.float32), H.astype(np.float32), G.astype(np.float32)


def expected(name, logp_mu, logp_pi, H, G):
    delta = logp_pi - logp_mu
    return {
        "keep-all": np.ones(len(delta), bool),
        "fixed": bd.keep_fixed(delta, threshold=1.2),
        "icepop": bd.keep_band(delta, low=0.5, high=5.0),
        "kpop": bd.keep_kpop(logp_mu, logp_pi, threshold=0.1),
        "entr": bd.keep_entr(delta, H, tau=1.0, eps=0.01),
        "entr-gini": bd.keep_entr(delta, G, tau=1.0, eps=0.01),
        "entr-envelope": bd.keep_entr(delta, bd.scaled_envelope(H), tau=1.0, eps=0.01),
    }[name]


@pytest.mark.parametrize("name", ["keep-all", "fixed", "icepop", "kpop", "entr", "entr-gini", "entr-envelope"])
def test_masks_agree(name):
    logp_mu, logp_pi, H, G = random_columns(sum(map(ord, name)))
    N = len(H)
    batch = TokenBatch(
        sequence=torch.arange(N),
        group=torch.zeros(N, dtype=torch.long),
        logp_pi=torch.from_numpy(logp_pi),
        logp_mu=torch.from_numpy(logp_mu),
        entropy_mu=torch.from_numpy(H),
        advantage=torch.ones(N),
        weight_version=torch.zeros(N, dtype=torch.long),
        target_version=0,
        collision_mu=torch.from_numpy(1.0 - G),
    )
    keep = make_rule(name).keep(batch).numpy()
    want = expected(name, *(x.astype(np.float64) for x in (logp_mu, logp_pi, H, G)))
    assert np.mean(keep != want) <= 2e-4  # float32 against float64, within rounding of the boundary
    if name != "keep-all":
        assert 0.02 < np.mean(want) < 0.999
