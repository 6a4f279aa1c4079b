"""Naive twins of every rule and metric: Python loops over numbers in float64, no code shared with the package.

They read the same float values as the rule (the columns of a batch as lists) and are written from the formulas of the
papers, token by token, with no thought of speed. M2PO is Algorithm 1 as printed: a loop that removes one token at a
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """One token."""

    logp_pi: float
    logp_mu: float
    entropy: float
    advantage: float
    collision: float

    @property
    def recorded(self) -> bool:
        return all(math.isfinite(value) for value in (self.logp_pi, self.logp_mu, self.entropy))

    @property
    def delta(self) -> float:
        return self.logp_pi - self.logp_mu


def rows(batch: Any) -> list[Row]:
    """Read a batch `[N]` into rows of Python floats."""
    collision = [math.nan] * batch.n_tokens if batch.collision_mu is None else batch.collision_mu.double().tolist()
    columns = (batch.logp_pi, batch.logp_mu, batch.entropy_mu, batch.advantage)
    lists = [column.detach().double().tolist() for column in columns]
    return [Row(*values) for values in zip(*lists, collision, strict=True)]


# ------------------------------------------------------------------------------------------------- keep rules


def _by_bounds(bounds: Callable[[Row], tuple[float, float]], side: str) -> Callable[[Sequence[Row]], list[bool]]:
    def keep(batch: Sequence[Row]) -> list[bool]:
        mask = []
        for row in batch:
            if not row.recorded:
                mask.append(False)
                continue
            low, high = bounds(row)
            above, below = row.delta > high, row.delta < low
            if side == "outward":
                above, below = above and row.advantage > 0, below and row.advantage < 0
            mask.append(not (above or below))
        return mask

    return keep


def binary_entropy_inverse(entropy: float) -> float:
    """The q ≤ ½ with −q log q − (1−q) log(1−q) = H, by bisection on q itself."""
    low, high = 0.0, 0.5
    for _ in range(2000):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        value = -middle * math.log(middle) - (1.0 - middle) * math.log1p(-middle)
        low, high = (middle, high) if value < entropy else (low, middle)
    return high


def variance_envelope(entropy: float) -> float:
    if entropy <= 0.0:
        return 0.0
    if entropy >= math.log(2.0):
        return 0.25
    q = binary_entropy_inverse(entropy)
    return q * (1.0 - q)


def binary_kl(p: float, q: float) -> float:
    """D_B(p‖q) from probabilities in extended precision, which is what cancellation at p → 1 costs."""
    p_, q_ = np.longdouble(p), np.longdouble(q)
    return float(p_ * np.log(p_ / q_) + (1 - p_) * np.log((1 - p_) / (1 - q_)))


def kpop(batch: Sequence[Row], phi: float, floor: float) -> list[bool]:
    return [row.recorded and kpop_divergence(row, floor) <= phi for row in batch]


def kpop_divergence(row: Row, floor: float) -> float:
    p, q = (
        np.clip(np.exp(np.longdouble(logp)), np.longdouble(floor), 1 - np.longdouble(floor))
        for logp in (row.logp_pi, row.logp_mu)
    )
    return max(binary_kl(p, q), binary_kl(q, p))


def m2po(batch: Sequence[Row], budget: float) -> list[bool]:
    """Algorithm 1: while the mean δ² of the trusted set exceeds the budget, mask the largest; ties go together."""
    mask = [row.recorded for row in batch]
    trusted = [
        index
        for index, row in enumerate(batch)
        if row.recorded and ((row.advantage > 0 and row.delta > 0) or (row.advantage < 0 and row.delta < 0))
    ]
    square = {index: float(np.float32(batch[index].delta) ** 2) for index in trusted}
    while trusted and math.fsum(square[index] for index in trusted) / len(trusted) > budget:
        largest = max(square[index] for index in trusted)
        for index in [index for index in trusted if square[index] == largest]:
            mask[index] = False
            trusted.remove(index)
    return mask


def keep(name: str, batch: Sequence[Row], hyper: dict[str, Any]) -> list[bool]:
    """The mask of a rule by its name and hyper-parameters."""
    side = str(hyper.get("side", "symmetric"))

    def entr_boundary(scale: float) -> float:
        return math.sqrt(hyper["tau"] * (max(scale, 0.0) + hyper["eps"]))

    def symmetric(boundary: Callable[[Row], float]) -> Callable[[Sequence[Row]], list[bool]]:
        return _by_bounds(lambda row: (-boundary(row), boundary(row)), side)

    table: dict[str, Callable[[Sequence[Row]], list[bool]]] = {
        "keep-all": lambda batch: [row.recorded for row in batch],
        "fixed": symmetric(lambda row: hyper["threshold"]),
        "icepop": _by_bounds(lambda row: (math.log(hyper["low"]), math.log(hyper["high"])), side),
        "entr": symmetric(lambda row: entr_boundary(row.entropy)),
        "entr-explore": symmetric(lambda row: max(hyper["threshold"], entr_boundary(row.entropy))),
        "entr-outlier": symmetric(lambda row: min(hyper["threshold"], entr_boundary(row.entropy))),
        "entr-gini": symmetric(lambda row: entr_boundary(1.0 - row.collision)),
        "entr-envelope": symmetric(lambda row: entr_boundary(4.0 * math.log(2.0) * variance_envelope(row.entropy))),
        "kpop": lambda batch: kpop(batch, hyper["phi"], hyper["floor"]),
        "m2po": lambda batch: m2po(batch, hyper["budget"]),
    }
    return table[name](batch)


def close_to_boundary(name: str, batch: Sequence[Row], hyper: dict[str, Any], slack: float) -> list[bool]:
    """Whether a relative change of δ by `slack` (all tokens alike) changes each decision."""

    def moved(factor: float) -> list[bool]:
        scaled = [
            Row(row.logp_mu + factor * row.delta, row.logp_mu, row.entropy, row.advantage, row.collision)
            for row in batch
        ]
        return keep(name, scaled, hyper)

    exact, low, high = keep(name, batch, hyper), moved(1.0 - slack), moved(1.0 + slack)
    return [len({a, b, c}) > 1 for a, b, c in zip(exact, low, high, strict=True)]


# ------------------------------------------------------------------------------------------------- objective


def grpo_advantage(reward: Sequence[float], group: Sequence[int], eps: float, centre_only: bool = False) -> list[float]:
    result = []
    for own, mine in zip(reward, group, strict=True):
        peers = [value for value, other in zip(reward, group, strict=True) if other == mine]
        centred = own - math.fsum(peers) / len(peers)
        deviation = float(np.std(peers, ddof=1)) if len(peers) > 1 else 0.0
        result.append(centred if centre_only else centred / (deviation + eps))
    return result


def coefficients(kind: str, sequence: Sequence[int], keep: Sequence[bool], constant: float | None) -> list[float]:
    n_sequences = len(set(sequence))
    length = {ident: sum(1 for other in sequence if other == ident) for ident in sequence}
    table: dict[str, Callable[[int], float]] = {
        "token-mean": lambda ident: 1.0 / len(sequence),
        "token-mean-kept": lambda ident: 1.0 / max(1, sum(keep)),
        "seq-mean-token-mean": lambda ident: 1.0 / (n_sequences * length[ident]),
        "seq-mean-token-sum": lambda ident: 1.0 / n_sequences,
        "constant": lambda ident: 1.0 / (constant or math.nan),
    }
    return [table[kind](ident) for ident in sequence]


def surrogate(kind: str, ratio: float, advantage: float, hyper: dict[str, float]) -> float:
    if kind == "plain-ratio":
        return ratio * advantage
    clipped = min(max(ratio, 1.0 - hyper["eps_low"]), 1.0 + hyper["eps_high"])
    value = min(ratio * advantage, clipped * advantage)
    return max(value, hyper["dual_clip"] * advantage) if advantage < 0 else value


# ------------------------------------------------------------------------------------------------- metrics


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _ratio_metrics(prefix: str, deltas: Sequence[float]) -> dict[str, float]:
    ratios = [math.exp(delta) for delta in deltas]
    total, squares = math.fsum(ratios), math.fsum(ratio**2 for ratio in ratios)
    return {
        f"{prefix}_m2": mean([delta**2 for delta in deltas]),
        f"{prefix}_ratio_sq": mean([ratio**2 for ratio in ratios]),
        f"{prefix}_ratio_dev": mean([abs(ratio - 1.0) for ratio in ratios]),
        f"{prefix}_kl_k3": mean([math.expm1(delta) - delta for delta in deltas]),
        f"{prefix}_ess_frac": total**2 / (len(ratios) * squares) if ratios else math.nan,
    }


def metrics(batch: Sequence[Row], keep: Sequence[bool], weight: Sequence[float] | None = None) -> dict[str, float]:
    recorded = [row for row in batch if row.recorded]
    kept = [row for row, kept in zip(batch, keep, strict=True) if kept]
    removed = [row for row, kept in zip(batch, keep, strict=True) if row.recorded and not kept]
    outward = [row for row in removed if row.advantage * row.delta > 0]
    found = {
        "masked_frac": 1.0 - len(kept) / len(batch),
        "unrecorded_frac": mean([float(not (math.isfinite(r.logp_mu) and math.isfinite(r.entropy))) for r in batch]),
        "removed_entropy": mean([row.entropy for row in removed]),
        "removed_low_entropy_frac": mean([float(row.entropy < 0.1) for row in removed]),
        "removed_outward_frac": len(outward) / len(removed) if removed else math.nan,
        "removed_inward_frac": 1.0 - len(outward) / len(removed) if removed else math.nan,
        "all_abs": mean([abs(row.delta) for row in recorded]),
        "all_kl_k1": mean([-row.delta for row in recorded]),
        **_ratio_metrics("all", [row.delta for row in recorded]),
        **_ratio_metrics("kept", [row.delta for row in kept]),
    }
    found["all_chi2"] = found["all_ratio_sq"] - 1.0
    if weight is not None:
        kept_weight = [w for w, kept in zip(weight, keep, strict=True) if kept]
        found["weight_sq"] = mean([w**2 for w in kept_weight])
        found["weight_mean"] = mean(kept_weight)
    return found


def masked_sequence_frac(sequence: Sequence[int], keep: Sequence[bool]) -> float:
    hit = {ident for ident, kept in zip(sequence, keep, strict=True) if not kept}
    return len(hit) / len(set(sequence))
