"""One optimiser step's gradient: who takes part, and what is decided before any of it."""

import torch

from entr_lab.objective import Advantage, get_method
from entr_lab.real.columns import UpdateColumns
from entr_lab.real.gradient import Gradient
from entr_lab.real.scoring import Scorer
from entr_lab.real.world import World

from .fakes import ToyModel, toy_rollouts


def setup(budget, world=None):
    """A gradient on a fresh model, and a batch."""
    scorer = Scorer(ToyModel())
    columns = UpdateColumns.of(toy_rollouts(groups=4), Advantage.GRPO)
    return Gradient(scorer, world or World(), budget, torch.device("cpu")), columns


def test_processes_share_the_sequences():
    """The plans of two processes are a partition of the step, the same on both."""
    plans = [setup(40, World(rank, 2))[0] for rank in range(2)]
    part = list(range(4, 16))
    first, second = (gradient.plan(setup(40)[1], part) for gradient in plans)

    assert first == second
    assert sorted(index for bins in first for micro in bins for index in micro) == part


def test_gradients_of_parts_add_up():
    """Only the sequences of the step take part; a second call adds to the first."""
    whole, columns = setup(10_000)
    whole.accumulate(columns, range(8), get_method("entr"), 0, None)
    alone = [p.grad.clone() for p in whole.scorer.parameters()]
    whole.accumulate(columns, range(8), get_method("entr"), 0, None)

    for parameter, once in zip(whole.scorer.parameters(), alone, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * once)


def test_what_comes_back_is_in_the_order_of_its_sequences():
    """Tokens, masks and weights can be cut by sequence again."""
    gradient, columns = setup(40)
    done = gradient.accumulate(columns, range(16), get_method("m2po"), 0, None)
    lengths = [int(columns.rollouts[i].trainable.sum()) for i in done.sequences]

    assert sorted(done.sequences) == list(range(16))
    expected = torch.tensor(done.sequences).repeat_interleave(torch.tensor(lengths))
    assert torch.equal(done.tokens.sequence, expected)
    assert done.keep.shape == done.weight.shape == expected.shape
    assert bool((done.weight[~done.keep] == 0).all())


def test_a_mask_is_decided_before_any_gradient():
    """With a batch rule no weight gradient exists when the rule is called, in many micro-batches too."""
    gradient, columns = setup(40)
    method = get_method("m2po")
    seen = []

    class Spy(World):
        def reduce(self, total):
            seen.append(any(p.grad is not None for p in gradient.scorer.parameters()))
            return total

    watched = Gradient(gradient.scorer, Spy(), 40, torch.device("cpu"))
    watched.accumulate(columns, range(16), method, 0, None)

    assert seen[:3] == [False] * 3
