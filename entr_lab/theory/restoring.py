"""Why a symmetric mask hides drift: a sample's own step and its own log-ratio (statement G1), on random networks.

The network is a small tanh MLP in plain numpy whose gradients are written out by hand; the functions also accept
complex parameters, so a test can check them by the complex step, which has no truncation error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from entr_lab.theory.scalars import Array

__all__ = ["Network", "OwnStep", "grad_log_prob", "log_probs", "own_step", "random_network", "tangent_kernel"]


class Network(NamedTuple):
    """A policy: input `[d]` → tanh layer → logits `[V]`."""

    hidden: npt.NDArray[np.inexact]
    bias: npt.NDArray[np.inexact]
    out: npt.NDArray[np.inexact]


class OwnStep(NamedTuple):
    """What one sample's own update does to its δ²/2: first order, and exactly for a finite learning rate."""

    predicted: float
    actual: float


def random_network(rng: np.random.Generator, inputs: int = 5, width: int = 7, vocabulary: int = 6) -> Network:
    """A network with Gaussian weights of unit output scale."""
    return Network(
        rng.standard_normal((width, inputs)) / np.sqrt(inputs),
        rng.standard_normal(width) * 0.3,
        rng.standard_normal((vocabulary, width)) * 1.5,
    )


def log_probs(net: Network, x: Array) -> npt.NDArray[np.inexact]:
    """log π(·|x), `[V]`; analytic in the parameters."""
    logits = net.out @ np.tanh(net.hidden @ x + net.bias)
    shifted = logits - np.max(logits.real)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted))))


def grad_log_prob(net: Network, x: Array, token: int) -> Network:
    """∇_θ log π(token|x), in the shape of the parameters, by the chain rule."""
    h = np.tanh(net.hidden @ x + net.bias)
    residual = -np.exp(log_probs(net, x))
    residual[token] += 1.0
    back = (net.out.T @ residual) * (1.0 - h**2)
    return Network(np.outer(back, x), back, np.outer(residual, h))


def tangent_kernel(gradient: Network, preconditioner: Network | None = None) -> float:
    """k(y, y) = ∇log π(y) · P ∇log π(y) ≥ 0 for a non-negative diagonal P (the identity unless given)."""
    scales = preconditioner or Network(*(np.ones_like(g) for g in gradient))
    return float(sum(np.sum(p * g * g) for p, g in zip(scales, gradient, strict=True)))


def own_step(
    net: Network,
    x: Array,
    token: int,
    *,
    log_ratio: float,
    advantage: float,
    weight: float,
    learning_rate: float,
    preconditioner: Network | None = None,
) -> OwnStep:
    """Change of δ²/2 of one sample under its own step θ ← θ + lr · c · A · P ∇log π(y).

    Statement G1: it equals lr · c · A · δ · k(y, y) + O(lr²) with k ≥ 0, for any differentiable policy and any positive
    diagonal preconditioner P. So with c > 0 an outward token (A·δ > 0) moves further out, and one with A·δ < 0 moves
    back: a symmetric mask deletes every restoring term of the rejected tokens, an outward mask keeps exactly those.
    The statement is about a sample's *own* effect; other samples reach its δ through shared parameters.
    Proof: dδ/dθ = ∇log π(y), since the recorded log μ does not depend on θ. Source: ours.
    """
    gradient = grad_log_prob(net, x, token)
    scales = preconditioner or Network(*(np.ones_like(g) for g in gradient))
    push = learning_rate * weight * advantage
    moved = Network(*(p + push * s * g for p, s, g in zip(net, scales, gradient, strict=True)))
    before = float(log_probs(net, x)[token])
    shift = float(log_probs(moved, x)[token]) - before
    # δ'²/2 − δ²/2 without subtracting two squares.
    actual = shift * (log_ratio + 0.5 * shift)
    return OwnStep(push * log_ratio * tangent_kernel(gradient, preconditioner), actual)
