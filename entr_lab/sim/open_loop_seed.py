"""Everything that one seed of the open loop observes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, final

import torch
from torch import Tensor

from entr_lab.errors import DataError
from entr_lab.rules import Entr, Fixed, IcePop, KeepRule, Kpop, M2po
from entr_lab.sim.drift import Drift, make_drift, scale_for_rms
from entr_lab.sim.logits import log_ratio_of_shift, sample_tokens, seeded_generator
from entr_lab.sim.matched_budget import Calibrated, Masked, masked, matched_budget
from entr_lab.sim.mismatch import record_error, top_p_log_probs
from entr_lab.sim.open_loop_result import OpenLoopConfig
from entr_lab.sim.outliers import Moments, Positions
from entr_lab.sim.synthetic import TokenSource, chunks
from entr_lab.sim.versions_mix import Attribution, attribute, switch_jump
from entr_lab.tokens import TokenBatch

__all__ = ["AS_PUBLISHED", "CALIBRATED", "PARTS", "REFERENCE", "Scales", "SeedTables", "drift_scales", "observe"]

_PILOT, _POSITIONS, _SHARED, _LOCAL, _STEP0, _LATER, _RAISED, _CAUSES, _MIXTURE = range(9)
"""Streams of random numbers, one a purpose."""

_PILOT_POSITIONS: Final = 2048
"""Positions on which the scales of drift are set, the same for all seeds."""
_CAUSE_POSITIONS: Final = 4096
"""Positions of the mismatch causes and of the attribution."""
_TRAJECTORY: Final = 64
_STALE: Final = "feature"
"""Drift model of the switch, budget and attribution tables: the one that behaves as trained runs do."""

CALIBRATED: Final[dict[str, KeepRule]] = {
    "fixed": Fixed(),
    "icepop": IcePop(),
    "kpop": Kpop(),
    "m2po": M2po(),
    "entr (ε = 0.1)": Entr(tau=1.0, eps=0.1),
    "entr (ε = 0.01)": Entr(tau=1.0, eps=0.01),
}
"""Rules that are scaled to the budget."""

REFERENCE: Final = "entr (ε = 0.1)"
"""The calibrated rule that the others are compared with."""

AS_PUBLISHED: Final[dict[str, KeepRule]] = {
    "icepop": IcePop(),
    "kpop": Kpop(),
    "m2po": M2po(),
    "entr (ε = 0.01)": Entr(tau=1.0, eps=0.01),
}
"""Rules at their papers' thresholds, for comparison."""

PARTS: Final = ("mismatch", "intra", "inter")

Cell = tuple[float, int]
"""(temperature, lag) of a later batch."""


@final
@dataclass(frozen=True, slots=True)
class Scales:
    """Scales of the drift models."""

    at_target: dict[str, float]
    """Drift model → scale at which RMS δ is the target of the slope tables."""
    per_version: float
    """Scale of the stale drift after one version."""


@final
@dataclass(frozen=True, slots=True)
class SeedTables:
    """What one seed observed; `run_open_loop` turns several of them into estimates."""

    causes: dict[str, Moments]
    """Moments of δ under each drift model and each mismatch."""
    jump: Tensor
    """Squared switch jump, at the positions of the drift models."""
    offset: float
    """Mean log of the nucleus's mass."""
    leak_error: float
    budget: float
    """Masked fraction of the reference rule at step 0."""
    calibrated: dict[str, tuple[Calibrated, dict[Cell, Masked]]]
    published: dict[str, dict[Cell, Masked]]
    parts: dict[str, tuple[float, float]]
    """Part of δ → (E[part²], E[part · δ]/E[δ²])."""
    telescoping_error: float


def drift_scales(config: OpenLoopConfig) -> Scales:
    """Set the scales on pilot positions that do not depend on the user's seeds."""
    generator = seeded_generator(0, _PILOT)
    logits = config.base.draw(_PILOT_POSITIONS, generator)
    probs = torch.softmax(logits, -1)

    def scale(name: str, target_rms: float) -> float:
        drift = make_drift(name, config.base.vocab, generator)
        return scale_for_rms(probs, drift.direction(logits, generator), target_rms)

    stale = scale(_STALE, math.sqrt(config.second_moment))
    at_target = {name: scale(name, config.target_rms) for name in config.drifts}
    return Scales(at_target, stale / config.second_moment_lag)


def observe(config: OpenLoopConfig, seed: int, scales: Scales, tick: Callable[[], None]) -> SeedTables:
    """Return all tables of one seed; `tick` is called after each chunk of positions."""
    stale = make_drift(_STALE, config.base.vocab, seeded_generator(seed, _SHARED))
    drifted, jump = _drift_moments(config, seed, scales, stale, tick)
    mismatched, offset, leak_error = _mismatch_moments(config, seed)
    budget, calibrated, published = _budget(config, seed, scales, stale, tick)
    parts, telescoping_error = _attribution(config, seed, scales, stale)
    return SeedTables(
        causes=drifted | mismatched,
        jump=jump,
        offset=offset,
        leak_error=leak_error,
        budget=budget,
        calibrated=calibrated,
        published=published,
        parts=parts,
        telescoping_error=telescoping_error,
    )


def _drift_moments(
    config: OpenLoopConfig, seed: int, scales: Scales, stale: Drift, tick: Callable[[], None]
) -> tuple[dict[str, Moments], Tensor]:
    """Return the moments under each drift model, and the squared switch jump, at the same positions."""
    drifts = {
        name: make_drift(name, config.base.vocab, seeded_generator(seed, _SHARED, index))
        for index, name in enumerate(config.drifts)
    }
    generator, local = seeded_generator(seed, _POSITIONS), seeded_generator(seed, _LOCAL)
    moments = {name: Moments.empty(config.positions) for name in drifts}
    jump = torch.empty(config.positions, dtype=torch.float64)
    for start, size in chunks(config.positions, config.chunk):
        logits = config.base.draw(size, generator)
        here = Positions.at(torch.log_softmax(logits, -1))
        for name, drift in drifts.items():
            shift = scales.at_target[name] * drift.direction(logits, local)
            moments[name].fill(start, here.moments(log_ratio_of_shift(here.probs, shift)))
        step = scales.per_version * stale.direction(logits, local)
        jump[start : start + size] = switch_jump(here.probs, step)
        tick()
    return moments, jump


def _mismatch_moments(config: OpenLoopConfig, seed: int) -> tuple[dict[str, Moments], float, float]:
    """Return the moments under each mismatch without drift, and the mean offset and worst error of the leak."""
    generator = seeded_generator(seed, _CAUSES)
    moments = {name: Moments.empty(_CAUSE_POSITIONS) for name in ("bf16", "routing flips", "record error")}
    offset, worst = 0.0, 0.0
    record = config.mismatch.record
    for start, size in chunks(_CAUSE_POSITIONS, config.chunk):
        logits = config.base.draw(size, generator)
        trainer = torch.log_softmax(logits, -1)
        engines = {
            "bf16": replace(config.mismatch, flip_prob=0.0).engine_logits(logits, generator),
            "routing flips": config.flips.engine_logits(logits, generator),
        }
        for name, engine_logits in engines.items():
            engine = torch.log_softmax(engine_logits, -1)
            moments[name].fill(start, Positions.at(engine).moments(trainer - engine))
        recorded = record_error(trainer.flatten(), scale=record, generator=generator).view_as(trainer)
        moments["record error"].fill(start, Positions.at(trainer).moments(trainer - recorded))
        truncated, log_mass = top_p_log_probs(trainer, config.top_p)
        leak = torch.where(truncated.isfinite(), trainer - truncated - log_mass.unsqueeze(-1), 0.0)
        worst = max(worst, leak.abs().max().item())
        offset += log_mass.sum().item() / _CAUSE_POSITIONS
    return moments, offset, worst


def _budget(
    config: OpenLoopConfig, seed: int, scales: Scales, stale: Drift, tick: Callable[[], None]
) -> tuple[float, dict[str, tuple[Calibrated, dict[Cell, Masked]]], dict[str, dict[Cell, Masked]]]:
    """Calibrate on a step-0 batch; apply to later batches at the base entropy and at a raised one."""

    def source(temperature: float) -> TokenSource:
        return TokenSource(
            base=replace(config.base, temperature=temperature * config.base.temperature),
            drift=stale,
            scale_per_version=scales.per_version,
            mismatch=config.mismatch,
            chunk=config.chunk,
        )

    step0 = source(1.0).draw(config.calibration_tokens, [0], seeded_generator(seed, _STEP0), tick)[0]
    later: dict[Cell, TokenBatch] = {}
    for temperature, stream in ((1.0, _LATER), (config.raised_temperature, _RAISED)):
        generator = seeded_generator(seed, stream)
        batches = source(temperature).draw(config.later_tokens, config.lags, generator, tick)
        later |= {(temperature, lag): batch for lag, batch in batches.items()}
    budget = masked(config.reference, step0).masked_frac
    if budget == 0:
        raise DataError(
            f"the reference rule masks none of {config.calibration_tokens} step-0 tokens of seed {seed}, which leaves "
            f"no budget; raise calibration_tokens or the mismatch."
        )
    published = {
        name: {cell: masked(rule, batch) for cell, batch in later.items()} for name, rule in AS_PUBLISHED.items()
    }
    return budget, matched_budget(CALIBRATED, step0, later, budget), published


def _attribution(
    config: OpenLoopConfig, seed: int, scales: Scales, stale: Drift
) -> tuple[dict[str, tuple[float, float]], float]:
    """Split δ of sampled tokens of trajectories that saw weight switches, and compare with δ taken directly."""
    generator = seeded_generator(seed, _MIXTURE)
    length = max(_TRAJECTORY, config.mix.intra + 1)
    versions = config.mix.token_versions(length)
    found: list[Attribution] = []
    deltas = []
    for _ in range(max(1, _CAUSE_POSITIONS // length)):
        base = config.base.draw(length, generator)
        step = scales.per_version * stale.direction(base, generator)
        logits = base + versions.unsqueeze(-1) * step
        engine = torch.log_softmax(config.mismatch.engine_logits(logits, generator), -1)
        index = sample_tokens(engine.exp(), generator)
        recorded = config.mismatch.recorded(engine.gather(-1, index).squeeze(-1), generator)
        to_last = (config.mix.intra - versions).unsqueeze(-1) * step
        found.append(attribute(logits, recorded, index.squeeze(-1), to_last, config.mix.inter * step))
        target = torch.log_softmax(base + config.mix.target * step, -1)
        deltas.append(target.gather(-1, index).squeeze(-1) - recorded)
    delta = torch.cat(deltas)
    columns = {part: torch.cat([getattr(one, part) for one in found]) for part in PARTS}
    error = (torch.stack(list(columns.values())).sum(0) - delta).abs().max().item()
    second = delta.square().mean().item()
    return {
        part: (column.square().mean().item(), (column * delta).mean().item() / second)
        for part, column in columns.items()
    }, error
