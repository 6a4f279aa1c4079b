"""Where δ comes from: mismatch, intra and inter parts, by scoring a probe again with the versions that sampled it.

For a token sampled under version v of a trajectory whose last version is v_last, used by an update from `target`:

    δ = log π_target − log μ
      = [log π_v − log μ]                    mismatch: engine against trainer at equal weights (numerics, kept caches)
      + [log π_{v_last} − log π_v]           intra: weights that changed while the trajectory was sampled
      + [log π_target − log π_{v_last}]      inter: weights that changed between its end and its use

with every log π from the trainer. The three parts add up to δ exactly. Ours; the lags are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entr_lab.errors import ProtocolError, check_range
from entr_lab.real.records import Rollout
from entr_lab.real.scoring import Scorer
from entr_lab.real.world import swapped

__all__ = ["ATTRIBUTION_DOCS", "Attribution", "VersionStore", "attribute"]

ATTRIBUTION_DOCS: Final[dict[str, str]] = {
    "probe_tokens": "tokens of the probe",
    "delta_rms": "√ mean δ² of the probe, nats",
    "mismatch_rms": "√ mean of the squared mismatch part, nats",
    "intra_rms": "√ mean of the squared intra part, nats",
    "inter_rms": "√ mean of the squared inter part, nats",
    "cross_share": "share of mean δ² that is cross terms between the parts; may be negative",
}
"""Every metric of `Attribution.metrics`."""


class VersionStore:
    """The newest weight versions, on the CPU, each kept once.

    Args:
        capacity: versions kept; `max_inter + max_intra + 1` hold everything that a batch may contain.
    """

    def __init__(self, capacity: int) -> None:
        check_range("capacity", capacity, low=1)
        self.capacity = capacity
        self._weights: dict[int, dict[str, Tensor]] = {}

    def add(self, version: int, weights: dict[str, Tensor]) -> None:
        """Keep `weights`, which must not change afterwards; forget the oldest beyond the capacity.

        Raises:
            ProtocolError: the version is not newer than all kept ones.
        """
        if self._weights and version <= max(self._weights):
            raise ProtocolError(f"version {version} was added after {max(self._weights)}; versions only rise.")
        self._weights[version] = weights
        while len(self._weights) > self.capacity:
            del self._weights[min(self._weights)]

    def __contains__(self, version: int) -> bool:
        return version in self._weights

    def __getitem__(self, version: int) -> dict[str, Tensor]:
        return self._weights[version]

    @property
    def versions(self) -> list[int]:
        """Versions kept, ascending."""
        return sorted(self._weights)


@dataclass(frozen=True, slots=True)
class Attribution:
    """The parts of δ of the probe's trainable tokens, `[N]` float64 each, in order; NaN δ are left out.

    Args:
        mismatch, intra, inter: the parts, nats.
    """

    mismatch: NDArray[np.float64]
    intra: NDArray[np.float64]
    inter: NDArray[np.float64]

    @property
    def delta(self) -> NDArray[np.float64]:
        """Their sum."""
        total: NDArray[np.float64] = self.mismatch + self.intra + self.inter
        return total

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers of `ATTRIBUTION_DOCS`; all but the count are NaN for an empty probe."""
        if not len(self.delta):
            return {name: 0.0 if name == "probe_tokens" else float("nan") for name in ATTRIBUTION_DOCS}
        squares = {name: float(np.mean(getattr(self, name) ** 2)) for name in ("delta", "mismatch", "intra", "inter")}
        parts = squares["mismatch"] + squares["intra"] + squares["inter"]
        cross = 1.0 - parts / squares["delta"] if squares["delta"] else 0.0
        roots = {f"{name}_rms": float(np.sqrt(square)) for name, square in squares.items()}
        return {"probe_tokens": float(len(self.delta)), **roots, "cross_share": cross}


@torch.no_grad()
def attribute(scorer: Scorer, store: VersionStore, probe: Sequence[Rollout], target_version: int) -> Attribution:
    """Split δ of every recorded token of `probe`.

    Args:
        scorer: its own weights are not used, and are the same afterwards. With a sharded one, a collective call.
        store: of this process's shares; must hold `target_version`; rollouts with tokens of a version that it lacks are
            left out.
        probe: some rollouts of the batch.
        target_version: version that the update starts from.

    Raises:
        ProtocolError: the store does not hold the target version.
    """
    if target_version not in store:
        raise ProtocolError(f"version {target_version} is not stored; add it before the update.")
    known = [r for r in probe if all(int(v) in store for v in np.unique(r.weight_version[r.trainable]))]
    if not known:
        empty = np.empty(0)
        return Attribution(empty, empty, empty)
    packed = scorer.pack(known).to(next(scorer.parameters()).device)
    own = np.concatenate([r.weight_version[r.trainable] for r in known])
    last = np.concatenate([np.full(r.trainable.sum(), r.weight_version[r.trainable][-1]) for r in known])
    logp_mu = np.concatenate([r.logp_mu[r.trainable] for r in known]).astype(np.float64)

    at_own, at_last, at_target = (np.full(len(own), np.nan) for _ in range(3))
    for version in np.unique(np.concatenate([own, last, [target_version]])).tolist():
        with swapped(scorer.model, store[version]):
            scores = scorer(packed)
        logp = scores.logp.double().cpu().numpy()
        for place, versions in ((at_own, own), (at_last, last)):
            place[versions == version] = logp[versions == version]
        if version == target_version:
            at_target = logp
    recorded = np.isfinite(logp_mu)
    parts = (at_own - logp_mu, at_last - at_own, at_target - at_last)
    return Attribution(*(part[recorded] for part in parts))
