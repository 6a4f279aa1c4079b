"""The policy against a plain torch module in float64: forward, folded tables, and the hand-written gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from entr_lab.errors import RangeError
from entr_lab.sim.policy import Folded, PolicyShape, Weights, backward, fold, forward, unfold_gradient

SHAPE = PolicyShape(features=(3, 5, 4), vocabulary=6, embedding=2, hidden=7)
RUNS, TOKENS = 2, 40


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def random_flat() -> Tensor:
    return torch.randn(RUNS, SHAPE.n_parameters, dtype=torch.float64)


def random_features() -> Tensor:
    """`[RUNS, TOKENS, 3]` values of each feature, not yet rows."""
    return torch.stack([torch.randint(0, size, (RUNS, TOKENS)) for size in SHAPE.features], dim=-1)


def plain_logits(flat: Tensor, features: Tensor) -> Tensor:
    """Embed, concatenate, three linear layers: the definition, without folding."""
    out = []
    for run in range(RUNS):
        sizes = [int(np.prod(shape)) for shape in SHAPE.blocks.values()]
        pieces = zip(flat[run].split(sizes), SHAPE.blocks.values(), strict=True)
        embed, w1, b1, w2, b2, w3, b3 = (piece.view(shape) for piece, shape in pieces)
        tables = embed.split(SHAPE.features)
        parts = [table[features[run, :, f]] for f, table in enumerate(tables)]
        x = torch.cat(parts, dim=-1) @ w1.reshape(-1, SHAPE.hidden) + b1
        x = torch.relu(x) @ w2 + b2
        out.append(torch.relu(x) @ w3 + b3)
    return torch.stack(out)


def folded_pass(flat: Tensor, features: Tensor, d_logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return (log-probabilities, gradient of Σ logits·d_logits by the flat vector) through the code under test."""
    rows = features + torch.tensor(SHAPE.offsets)
    folded, slope = (Folded.empty(SHAPE, RUNS, dtype=torch.float64) for _ in range(2))
    weights, gradient = Weights.views(SHAPE, flat), torch.full_like(flat, torch.nan)
    fold(SHAPE, weights, folded)
    logp = []
    for run in range(RUNS):
        kept = forward(folded.at(run), rows[run])
        logp.append(kept.shifted.log_softmax(-1))
        backward(folded.at(run), rows[run], kept, d_logits[run], slope.at(run))
    unfold_gradient(SHAPE, weights, slope, Weights.views(SHAPE, gradient))
    return torch.stack(logp), gradient


def test_folded_forward_is_the_plain_network() -> None:
    flat, features = random_flat(), random_features()
    logp, _ = folded_pass(flat, features, torch.zeros(RUNS, TOKENS, SHAPE.vocabulary, dtype=torch.float64))
    torch.testing.assert_close(logp, plain_logits(flat, features).log_softmax(-1), rtol=0, atol=1e-12)


def test_gradient_is_autograds() -> None:
    flat, features = random_flat().requires_grad_(), random_features()
    d_logits = torch.randn(RUNS, TOKENS, SHAPE.vocabulary, dtype=torch.float64)
    (expected,) = torch.autograd.grad((plain_logits(flat, features) * d_logits).sum(), flat)
    _, gradient = folded_pass(flat.detach(), features, d_logits)
    torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-11)


def test_gradient_is_the_finite_difference() -> None:
    flat, features = random_flat(), random_features()
    d_logits = torch.randn(RUNS, TOKENS, SHAPE.vocabulary, dtype=torch.float64)
    _, gradient = folded_pass(flat, features, d_logits)
    step = 1e-6
    for place in range(0, SHAPE.n_parameters, 7):
        shift = torch.zeros_like(flat)
        shift[:, place] = step
        up, down = ((plain_logits(flat + sign * shift, features) * d_logits).sum((-2, -1)) for sign in (1.0, -1.0))
        torch.testing.assert_close((up - down) / (2 * step), gradient[:, place], rtol=1e-5, atol=1e-6)


def test_default_size_is_the_one_of_the_tables() -> None:
    shape = PolicyShape(features=(8, 32, 32, 11, 11), vocabulary=32)
    assert shape.n_parameters == 12_928
    assert shape.initial(0).shape == (12_928,)
    assert not np.array_equal(shape.initial(0), shape.initial(1))


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(RangeError, match="feature size"):
        PolicyShape(features=(3, 0), vocabulary=4)
    with pytest.raises(RangeError, match="hidden"):
        PolicyShape(features=(3,), vocabulary=4, hidden=0)
