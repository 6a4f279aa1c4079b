"""G1 on random networks: gradients by the complex step, the sign for finite steps, the order of the remainder."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.theory.restoring import Network, grad_log_prob, log_probs, own_step, random_network, tangent_kernel


def setup(seed):
    rng = np.random.default_rng(seed)
    net = random_network(rng)
    return rng, net, rng.standard_normal(5), int(rng.integers(6))


@pytest.mark.parametrize("seed", range(4))
def test_gradient_matches_the_complex_step(seed):
    _, net, x, token = setup(seed)
    gradient = grad_log_prob(net, x, token)
    for part in range(3):
        for index in np.ndindex(net[part].shape):
            moved = [p.astype(complex) for p in net]
            moved[part][index] += 1e-30j
            slope = log_probs(Network(*moved), x)[token].imag / 1e-30
            assert gradient[part][index] == pytest.approx(slope, rel=1e-11, abs=1e-14)


def test_log_probs_normalise():
    _, net, x, _ = setup(9)
    assert np.exp(log_probs(net, x)).sum() == pytest.approx(1.0)


@given(st.integers(0, 9999), st.floats(-4, 4), st.floats(-3, 3), st.booleans())
@settings(max_examples=60)
def test_sign_is_that_of_advantage_times_log_ratio(seed, delta, advantage, diagonal):
    rng, net, x, token = setup(seed)
    P = Network(*(rng.uniform(0.1, 10.0, p.shape) for p in net)) if diagonal else None
    options = {"log_ratio": delta, "advantage": advantage, "weight": 0.7, "preconditioner": P}
    step = own_step(net, x, token, learning_rate=1e-7, **options)
    assert step.predicted * advantage * delta >= 0
    if abs(advantage * delta) > 1e-2:
        assert step.actual == pytest.approx(step.predicted, rel=2e-3)
        assert (step.actual > 0) == (advantage * delta > 0)


def test_remainder_is_second_order():
    _, net, x, token = setup(3)
    rates = np.geomspace(1e-6, 1e-3, 7)
    gaps = []
    for rate in rates:
        s = own_step(net, x, token, log_ratio=1.3, advantage=-0.8, weight=1.0, learning_rate=float(rate))
        gaps.append(abs(s.actual - s.predicted))
    assert np.polyfit(np.log(rates), np.log(gaps), 1)[0] == pytest.approx(2.0, abs=0.05)


def test_kernel_is_the_squared_norm():
    _, net, x, token = setup(5)
    gradient = grad_log_prob(net, x, token)
    flat = np.concatenate([g.ravel() for g in gradient])
    assert tangent_kernel(gradient) == pytest.approx(flat @ flat)


def test_zero_weight_moves_nothing():
    _, net, x, token = setup(6)
    step = own_step(net, x, token, log_ratio=2.0, advantage=1.0, weight=0.0, learning_rate=0.1)
    assert step == (0.0, 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_own_step_matches_automatic_differentiation_of_the_same_network_in_torch(seed):
    """A second route for G1: reverse mode on the same network, sharing no formula with the hand-written gradients."""
    rng, net, x, token = setup(seed)
    delta, advantage, weight = rng.uniform(-3, 3, 3)
    parameters = [torch.tensor(part, requires_grad=True) for part in net]
    hidden, bias, out = parameters
    logits = out @ torch.tanh(hidden @ torch.tensor(x) + bias)
    logp = torch.log_softmax(logits, -1)[token]
    # The gradient of δ²/2 by the parameters, against the step that ascends weight·A·log π: δ moves as log π does.
    to_shrink = torch.autograd.grad(0.5 * (logp - logp.detach() + delta) ** 2, parameters, retain_graph=True)
    ascent = torch.autograd.grad(weight * advantage * logp, parameters)
    slope = sum(float((a * b).sum()) for a, b in zip(to_shrink, ascent, strict=True))

    step = own_step(net, x, token, log_ratio=delta, advantage=advantage, weight=weight, learning_rate=1e-3)

    assert step.predicted == pytest.approx(1e-3 * slope, rel=1e-9)
    assert np.sign(slope) == np.sign(weight * advantage * delta)
