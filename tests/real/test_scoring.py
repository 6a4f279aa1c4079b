"""Scores against plain autograd over the whole [N, V], and packed sequences against the same ones alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from entr_lab.errors import EngineError, RangeError
from entr_lab.real.packing import pack, packed_length
from entr_lab.real.scoring import Scorer, score_hidden

from .fakes import ToyModel, toy_rollouts


def naive(hidden, weight, targets, bias, temperature):
    """The textbook route: the whole matrix, log_softmax, autograd."""
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias
    logp = (logits / temperature).log_softmax(-1)
    probs = logp.exp()
    return logp[torch.arange(len(targets)), targets], -(probs * logp).sum(-1), (probs**2).sum(-1)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 40),
    vocabulary=st.integers(2, 30),
    chunk=st.integers(1, 50),
    temperature=st.floats(0.3, 3.0),
    with_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_matches_autograd(n, vocabulary, chunk, temperature, with_bias, seed):
    """Values and gradients of every input equal those of autograd, for any chunk."""
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 5, generator=random).requires_grad_()
    weight = (2 * torch.randn(vocabulary, 5, generator=random)).requires_grad_()
    bias = torch.randn(vocabulary, generator=random).requires_grad_() if with_bias else None
    targets = torch.randint(0, vocabulary, (n,), generator=random)
    upstream = torch.randn(n, generator=random)
    leaves = [hidden, weight] + ([bias] if bias is not None else [])

    scores = score_hidden(hidden, weight, targets, bias=bias, temperature=temperature, chunk=chunk)
    expected = naive(hidden, weight, targets, bias, temperature)
    mine = torch.autograd.grad((scores.logp * upstream).sum(), leaves)
    theirs = torch.autograd.grad((expected[0] * upstream).sum(), leaves)

    for value, reference in zip((scores.logp, scores.entropy, scores.collision), expected, strict=True):
        torch.testing.assert_close(value, reference, atol=3e-5, rtol=1e-5)
    for value, reference in zip(mine, theirs, strict=True):
        torch.testing.assert_close(value, reference, atol=1e-4, rtol=1e-4)


def test_entropy_carries_no_gradient():
    """Only log π is differentiable; entropies are records."""
    weight = torch.randn(4, 3, requires_grad=True)
    scores = score_hidden(torch.randn(2, 3), weight, torch.tensor([0, 1]))

    assert scores.logp.requires_grad
    assert not scores.entropy.requires_grad
    assert not scores.collision.requires_grad


def test_impossible_tokens_keep_the_entropy_finite():
    """A token of probability zero adds nothing to H; 0 · ∞ is not NaN."""
    bias = torch.tensor([0.0, 0.0, float("-inf")])
    scores = score_hidden(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), bias=bias)

    torch.testing.assert_close(scores.entropy, torch.tensor([2.0]).log())
    torch.testing.assert_close(scores.collision, torch.tensor([0.5]))


def test_largest_temporary_is_one_chunk():
    """No tensor of N · V elements exists, in forward or backward."""
    n, vocabulary, chunk = 512, 1000, 16
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else (out,):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    hidden = torch.randn(n, 4, requires_grad=True)
    weight = torch.randn(vocabulary, 4, requires_grad=True)
    with Watch():
        score_hidden(hidden, weight, torch.zeros(n, dtype=torch.int64), chunk=chunk).logp.sum().backward()

    assert largest == chunk * vocabulary


def test_packed_sequences_do_not_see_each_other():
    """Scores of a pack are those of each sequence alone."""
    scorer = Scorer(ToyModel(), temperature=0.7)
    rollouts = [rollout for group in toy_rollouts() for rollout in group]

    together = scorer(pack(rollouts))
    alone = [scorer(pack([rollout])) for rollout in rollouts]

    torch.testing.assert_close(together.logp, torch.cat([one.logp for one in alone]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together.entropy, torch.cat([one.entropy for one in alone]), atol=1e-5, rtol=1e-5)


def test_check_accepts_a_plain_model_in_both_dtypes():
    """The canary of a model that packs correctly passes."""
    Scorer(ToyModel()).check()
    Scorer(ToyModel(), dtype=torch.bfloat16).check()


def test_check_refuses_a_model_that_leaks_across_sequences():
    """A model that ignores position resets would train on a neighbour's context."""

    class Leaking(ToyModel):
        @property
        def base_model(self):
            return lambda input_ids, position_ids, use_cache: self.model(input_ids)

    with pytest.raises(EngineError, match="packed"):
        Scorer(Leaking()).check()


def test_check_refuses_a_model_that_scales_its_logits():
    """The head alone is then not the model's distribution."""

    class Scaled(ToyModel):
        def forward(self, input_ids, use_cache=False):
            out = super().forward(input_ids)
            out.logits = out.logits * 0.5
            return out

    with pytest.raises(EngineError, match="scales its logits"):
        Scorer(Scaled()).check()


def test_temperature_must_be_positive():
    """Greedy decoding has no density."""
    with pytest.raises(RangeError, match="temperature"):
        score_hidden(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), temperature=0.0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_short_rows_of_a_real_architecture_score_like_one_row(attention):
    """The layout that a dense mask wants gives the same scores, and packed neighbours stay unseen."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
        attn_implementation=attention,
    )
    scorer = Scorer(transformers.Qwen3ForCausalLM(config).float().eval())
    rollouts = [rollout for group in toy_rollouts() for rollout in group]
    rows = scorer.pack(rollouts)
    assert rows.input_ids.shape[1] == max(packed_length(r) for r in rollouts)

    together = scorer(rows)
    one_row = scorer(pack(rollouts))
    alone = torch.cat([scorer(pack([rollout])).logp for rollout in rollouts])

    torch.testing.assert_close(together.logp, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one_row.logp, alone, atol=1e-5, rtol=1e-5)
    scorer.check()
