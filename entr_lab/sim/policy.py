"""A small autoregressive policy for many independent runs at once: window features → embeddings → two hidden layers.

Categorical features (phase, last tokens, current digit, …) are embedded, concatenated and sent through a ReLU MLP.
A window instead of a recurrent state makes sampling sequential but the training pass one call over all tokens; the
trunk is shared by all positions, so a weight update leaks to tokens that it was not about, which is what produces
the √H law and the low-entropy outliers.

Embedding and first layer are folded into one table per feature value, T_f = E_f W1_f (+ b1 at the first feature),
so that a token's first layer is a sum of five rows. Gradients are written by hand; a test holds them against
autograd. Everything is one flat parameter vector per run, `[S, P]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import check_range
from entr_lab.sim.streams import Purpose, stream

__all__ = ["Activations", "Folded", "PolicyShape", "Weights", "backward", "fold", "forward", "unfold_gradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyShape:
    """Sizes of the policy.

    Raises:
        RangeError: a size is below 1.
    """

    features: tuple[int, ...]
    """Number of values of each categorical feature."""
    vocabulary: int
    """V."""
    embedding: int = 16
    """Width of one feature's embedding."""
    hidden: int = 64
    """Width of both hidden layers."""

    def __post_init__(self) -> None:
        for name in ("vocabulary", "embedding", "hidden"):
            check_range(name, getattr(self, name), low=1)
        for size in self.features:
            check_range("feature size", size, low=1)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Row at which each feature's block of the table starts."""
        return tuple(accumulate(self.features[:-1], initial=0))

    @property
    def blocks(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each block of the flat vector, in its order."""
        n, width = len(self.features), self.hidden
        return {
            "embed": (sum(self.features), self.embedding),
            "w1": (n, self.embedding, width),
            "b1": (1, width),
            "w2": (width, width),
            "b2": (1, width),
            "w3": (width, self.vocabulary),
            "b3": (1, self.vocabulary),
        }

    @property
    def n_parameters(self) -> int:
        """P, length of the flat vector."""
        return sum(int(np.prod(shape)) for shape in self.blocks.values())

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Draw the flat vector `[P]`: normal embeddings of size 2, He-scaled weights, zero biases.

        The wide embeddings make the function move fast enough under small Adam steps to show drift within a few
        hundred updates.
        """
        rng = stream(seed, Purpose.INITIAL_WEIGHTS)
        fan_in = {"w1": len(self.features) * self.embedding, "w2": self.hidden, "w3": self.hidden}
        scale = {"embed": 2.0} | {name: (2 / size) ** 0.5 for name, size in fan_in.items()}
        parts = [rng.standard_normal(shape) * scale.get(name, 0.0) for name, shape in self.blocks.items()]
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)


class Weights(NamedTuple):
    """Views into flat vectors `[S, P]`, one block each; `views` makes them."""

    embed: Tensor
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    w3: Tensor
    b3: Tensor

    @classmethod
    def views(cls, shape: PolicyShape, flat: Tensor) -> Weights:
        """Return the blocks of `flat` `[S, P]` as views `[S, …]`."""
        blocks = shape.blocks
        pieces = torch.split(flat, [int(np.prod(block)) for block in blocks.values()], dim=-1)
        return cls(
            *(piece.view(*piece.shape[:-1], *block) for piece, block in zip(pieces, blocks.values(), strict=True))
        )


class Folded(NamedTuple):
    """What sampling and training read: the table of folded feature rows and the upper layers, `[S, …]` each."""

    table: Tensor
    w2: Tensor
    b2: Tensor
    w3: Tensor
    b3: Tensor

    @classmethod
    def empty(cls, shape: PolicyShape, *lead: int, dtype: torch.dtype = torch.float32) -> Folded:
        """Allocate `[*lead, …]` blocks."""
        width = shape.hidden
        sizes = ((sum(shape.features), width), *(shape.blocks[name] for name in ("w2", "b2", "w3", "b3")))
        return cls(*(torch.zeros(*lead, *size, dtype=dtype) for size in sizes))

    def at(self, index: int | slice) -> Folded:
        """Index the leading axis of every block."""
        return Folded(*(block[index] for block in self))


class Activations(NamedTuple):
    """What `forward` leaves for `backward`, one run."""

    first: Tensor
    """`[N, hidden]` first hidden layer after ReLU."""
    second: Tensor
    """`[N, hidden]` second hidden layer after ReLU."""
    shifted: Tensor
    """`[N, V]` logits minus their maximum."""

    def head(self, count: int) -> Activations:
        """Return the first `count` tokens, as views."""
        return Activations(*(block[:count] for block in self))


def fold(shape: PolicyShape, weights: Weights, out: Folded) -> None:
    """Write the folded form of `weights` `[S, …]` into `out`."""
    for f, (start, size) in enumerate(zip(shape.offsets, shape.features, strict=True)):
        rows = slice(start, start + size)
        torch.bmm(weights.embed[:, rows], weights.w1[:, f], out=out.table[:, rows])
    out.table[:, : shape.features[0]] += weights.b1
    for target, source in zip(out[1:], (weights.w2, weights.b2, weights.w3, weights.b3), strict=True):
        target.copy_(source)


def unfold_gradient(shape: PolicyShape, weights: Weights, gradient: Folded, out: Weights) -> None:
    """Turn the gradient by the folded form into the gradient by the parameters, all `[S, …]`, written into `out`."""
    for f, (start, size) in enumerate(zip(shape.offsets, shape.features, strict=True)):
        rows = slice(start, start + size)
        table = gradient.table[:, rows]
        out.embed[:, rows] = torch.bmm(table, weights.w1[:, f].mT)
        out.w1[:, f] = torch.bmm(weights.embed[:, rows].mT, table)
    out.b1.copy_(gradient.table[:, : shape.features[0]].sum(-2, keepdim=True))
    for target, source in zip((out.w2, out.b2, out.w3, out.b3), gradient[1:], strict=True):
        target.copy_(source)


def forward(folded: Folded, rows: Tensor) -> Activations:
    """Run one policy (blocks without leading axis) on `rows` `[N, features]`, indices into its table."""
    count, features = rows.shape
    first = torch.embedding_bag(folded.table, rows.flatten(), torch.arange(0, count * features, features))[0].relu_()
    second = torch.addmm(folded.b2, first, folded.w2).relu_()
    logits = torch.addmm(folded.b3, second, folded.w3)
    return Activations(first, second, logits.sub_(logits.amax(-1, keepdim=True)))


def backward(folded: Folded, rows: Tensor, kept: Activations, d_logits: Tensor, out: Folded) -> None:
    """Write the gradient of Σ logits · d_logits by one folded policy into `out`.

    Args:
        folded: the policy, blocks without leading axis.
        rows: `[N, features]` as given to `forward`.
        kept: what `forward` returned.
        d_logits: `[N, V]` upstream gradient.
        out: same blocks as `folded`; overwritten.
    """
    torch.mm(kept.second.T, d_logits, out=out.w3)
    torch.sum(d_logits, 0, keepdim=True, out=out.b3)
    d_second = _through_relu(torch.mm(d_logits, folded.w3.T), kept.second)
    torch.mm(kept.first.T, d_second, out=out.w2)
    torch.sum(d_second, 0, keepdim=True, out=out.b2)
    d_first = _through_relu(torch.mm(d_second, folded.w2.T), kept.first)
    out.table.copy_(_sum_by_row(rows, d_first, len(out.table)))


def _through_relu(gradient: Tensor, activation: Tensor) -> Tensor:
    torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)
    return gradient


def _sum_by_row(rows: Tensor, values: Tensor, size: int) -> Tensor:
    """Return `[size, hidden]`, for each row of the table the sum of the `values` `[N, hidden]` of tokens that read it.

    A gather in the order of the rows, summed bag by bag, takes a third of the time of `index_add_`.
    """
    # Sorting small integers is a pass or two of a radix sort.
    columns = rows.numpy().T.astype(np.min_scalar_type(size))
    order = columns.argsort(axis=-1, kind="stable").ravel()
    ends = np.bincount(columns.ravel(), minlength=size).cumsum()
    starts = torch.from_numpy(np.concatenate([[0], ends[:-1]]))
    total: Tensor = torch.embedding_bag(values, torch.from_numpy(order), starts)[0]
    return total
