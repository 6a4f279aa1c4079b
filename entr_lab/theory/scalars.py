"""The scalar functions that every statement is made of, stable over the whole float64 range.

    g(x) = eˣ − 1 − x,   φ(x) = g(x)/x² with φ(0) = ½,   h_b(q) = −q log q − (1−q) log(1−q),   all in nats.

φ(x) = ∫₀¹ (1−s) e^{sx} ds, so φ and all its derivatives are positive: φ is increasing and convex on ℝ.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py, xlogy

__all__ = ["Array", "ArrayLike", "Bool", "binary_entropy", "g", "phi", "xexp"]

Array: TypeAlias = npt.NDArray[np.float64]
Bool: TypeAlias = npt.NDArray[np.bool_]
ArrayLike: TypeAlias = npt.ArrayLike

# 1/(k+2)! for k = 0 … 19: the neglected term is below 1e-21 for |x| ≤ 1.
_PHI_SERIES = 1.0 / np.cumprod(np.arange(2.0, 22.0))


def phi(x: ArrayLike) -> Array:
    """φ(x) = (eˣ − 1 − x)/x², with φ(0) = ½; any shape; inf beyond x ≈ 709, where eˣ leaves float64.

    The quotient loses all digits near 0, so |x| ≤ 1 uses the power series Σ xᵏ/(k+2)!. Source: paper.
    """
    x = np.asarray(x, dtype=np.float64)
    small = np.abs(x) <= 1.0
    near = np.where(small, x, 0.0)
    series = np.polynomial.polynomial.polyval(near, _PHI_SERIES)
    far = np.where(small, 1.0, x)
    with np.errstate(over="ignore"):
        # Divided twice, because x² alone overflows where the quotient does not.
        quotient = (np.expm1(far) / far - 1.0) / far
    return np.asarray(np.where(small, series, quotient))


def g(x: ArrayLike) -> Array:
    """g(x) = eˣ − 1 − x = x² φ(x) ≥ 0, the k3 estimator of KL(μ‖π) at x = δ; any shape. Source: paper."""
    x = np.asarray(x, dtype=np.float64)
    small = np.abs(x) <= 1.0
    near = np.where(small, x, 0.0)
    with np.errstate(over="ignore"):
        far = np.expm1(x) - x
    return np.asarray(np.where(small, near * near * phi(near), far))


def xexp(x: ArrayLike) -> Array:
    """eˣ without a warning when it overflows to inf; any shape."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(np.asarray(x, dtype=np.float64)))


def binary_entropy(q: ArrayLike) -> Array:
    """h_b(q) in nats for q ∈ [0, 1], with h_b(0) = h_b(1) = 0; any shape."""
    q = np.asarray(q, dtype=np.float64)
    return np.asarray(-xlogy(q, q) - xlog1py(1.0 - q, -q))
