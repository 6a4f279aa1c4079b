"""The proof after a weight update: the engine says what the trainer says, before any new token is trusted.

Two parts. The worker has compared the CRC-32 of every tensor with the trainer's before it loaded one
(`weight_transfer.read_weights`). Then the engine, serving again, picks one token after each canary prompt, greedily,
and its log-prob, entropy and Σμ² there are compared with the trainer's own: that catches what a checksum cannot, a
weight that arrived but is not used (a packed copy, a tied head, a cache of another version). Ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from entr_lab.errors import EngineError
from entr_lab.real.canary import CanaryReference
from entr_lab.real.records import Completion

__all__ = ["Proof", "prove"]


@dataclass(frozen=True, slots=True)
class Proof:
    """What a passed proof found.

    Args:
        version: of the weights that were proved.
        worst: largest difference over all canaries and all three numbers, nats (Σμ² counts as a number).
        tolerance: that it was held against.
    """

    version: int
    worst: float
    tolerance: float


def prove(reference: CanaryReference, answers: Sequence[Completion], version: int, tolerance: float) -> Proof:
    """Compare the engine's canary answers with the trainer's reference.

    Args:
        reference: of K prompts.
        answers: K one-token completions, greedy, in the order of the prompts.
        version: that the engine was just given.
        tolerance: nats.

    Raises:
        EngineError: an answer is of other weights, not a number, of a token that the trainer finds unlikely, or
            differs by more than `tolerance`; the message names prompt and token.
    """
    worst = 0.0
    for place, answer in enumerate(answers):
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
        for name, ours, theirs in zip(("log-prob", "entropy", "collision"), engine, trainer, strict=True):
            difference = abs(ours - theirs)
            worst = max(worst, difference)
            if not difference <= tolerance:
                raise EngineError(
                    f"{where}: {name} {ours:.6g} in the engine, {theirs:.6g} in the trainer under weights {version} "
                    f"(difference {difference:.3g}, tolerance {tolerance:g}); the engine does not use the weights "
                    f"that it was sent."
                )
    return Proof(version, worst, tolerance)
