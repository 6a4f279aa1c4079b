"""The proof after a weight update: the engine says what the trainer says, before any new token is trusted.

Two parts. The worker has compared the CRC-32 of every tensor with the trainer's before it loaded one
(`weight_transfer.read_weights`). Then the engine, serving again, picks one token after each canary prompt, greedily,
and its log-prob, entropy and Σμ² there are compared with the trainer's own: that catches what a checksum cannot, a
weight that arrived but is not used (a packed copy, a tied head, a cache of another version). Ours.

One canary may be off by far more than the others where rounding is coarse: of 240 sound bfloat16 engines the worst of
four canaries differed by up to 0.30 nats, the mean of the other three by at most 0.04, while a tensor that was not
updated moved that mean by 0.015 to 0.24, or with sixteen canaries by 0.044 to 0.36. So the mean without the worst is
held against the tolerance, and each by itself against ten times that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from entr_lab.errors import EngineError
from entr_lab.real.canary import CanaryReference
from entr_lab.real.records import Completion

__all__ = ["Proof", "prove"]

_EACH: Final = 10.0
"""How many times the tolerance one canary by itself may be off."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a passed proof found.

    Args:
        version: of the weights that were proved.
        worst: largest difference over all canaries and all three numbers, nats (Σμ² counts as a number).
        typical: mean over the canaries, without the worst, of each one's largest difference.
        tolerance: that `typical` was held against.
    """

    version: int
    worst: float
    typical: float
    tolerance: float


def prove(reference: CanaryReference, answers: Sequence[Completion], version: int, tolerance: float) -> Proof:
    """Compare the engine's canary answers with the trainer's reference.

    Args:
        reference: of K prompts.
        answers: K one-token completions, greedy, in the order of the prompts.
        version: that the engine was just given.
        tolerance: of the mean without the worst canary, nats; with one canary, of that one.

    Raises:
        EngineError: an answer is of other weights, not a number, of a token that the trainer finds unlikely, or
            differs by more than ten times `tolerance`, or all but one by more than it on average; the message names
            prompt and token.
    """
    found = [_compare(reference, place, answer, version) for place, answer in enumerate(answers)]
    worst, where = max(found)
    others = sorted(difference for difference, _ in found)[:-1] or [worst]
    typical = sum(others) / len(others)
    if not worst <= _EACH * tolerance:
        raise EngineError(
            f"{where} under weights {version} (difference {worst:.3g}, tolerance {_EACH * tolerance:g}); the engine "
            f"does not use the weights that it was sent."
        )
    if not typical <= tolerance:
        raise EngineError(
            f"{where} under weights {version}, and the other canaries differ by {typical:.3g} on average (tolerance "
            f"{tolerance:g}); the engine does not use the weights that it was sent."
        )
    return Proof(version, worst, typical, tolerance)


def _compare(reference: CanaryReference, place: int, answer: Completion, version: int) -> tuple[float, str]:
    """Return the largest difference of one answer, and what differs."""
    token = int(answer.token_ids[0])
    where = f"canary {place} (prompt of {len(reference.prompts[place])} tokens), token {token}"
    if int(answer.weight_version[0]) != version:
        raise EngineError(
            f"{where}: produced by weights {int(answer.weight_version[0])} after an update to {version}; "
            f"restart the generator."
        )
    ranks = (reference.top_ids[place] == token).nonzero()[0]
    engine = (float(answer.logp_mu[0]), float(answer.entropy_mu[0]), float(answer.collision_mu[0]))
    if not all(math.isfinite(number) for number in engine):
        raise EngineError(f"{where}: the engine returns {engine} under weights {version}; check them for NaN.")
    if len(ranks) == 0:
        raise EngineError(
            f"{where}: the engine's likeliest token is not among the trainer's {reference.top_ids.shape[1]} "
            f"likeliest under weights {version}; the engine does not use the weights that it was sent."
        )
    trainer = (
        float(reference.top_logp[place, ranks[0]]),
        float(reference.entropy[place]),
        float(reference.collision[place]),
    )
    worst = (-1.0, "")
    for name, ours, theirs in zip(("log-prob", "entropy", "collision"), engine, trainer, strict=True):
        # Where the trainer has no number either, nothing is proved.
        difference = abs(ours - theirs) if math.isfinite(theirs) else math.inf
        worst = max(worst, (difference, f"{where}: {name} {ours:.6g} in the engine, {theirs:.6g} in the trainer"))
    return worst
