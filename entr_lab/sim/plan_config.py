"""Reading plans: unknown keys, wrong values and plans that cannot run are refused, with the nearest that can."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from entr_lab.errors import ConfigError, nearest
from entr_lab.sim.plan_schema import Batch, Plan

__all__ = ["Plan", "parse_plan", "read_plan", "read_plan_data", "with_protocol", "with_split"]


def parse_plan(data: Mapping[str, Any]) -> Plan:
    """Validate plain data as a plan that can run.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or the plan cannot run; names the nearest that can.
    """
    try:
        plan = Plan.model_validate(dict(data))
    except ValidationError as error:
        raise ConfigError(_one_sentence(error)) from None
    _check_runs(plan)
    return plan


def read_plan(path: Path) -> Plan:
    """Read a plan from a TOML file.

    Raises:
        ConfigError: the file is missing or no TOML, or `parse_plan` refuses it.
    """
    return parse_plan(read_plan_data(path))


def read_plan_data(path: Path) -> dict[str, Any]:
    """Read a TOML file as plain data, unchecked, named after the file.

    Raises:
        ConfigError: the file is missing or no TOML.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the plan {path} cannot be read ({error.strerror}); give the path of a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML ({error}); see examples/plans.") from None
    return {"name": path.stem} | data


def with_protocol(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other protocol settings, checked again."""
    return parse_plan(plan.model_dump() | {"protocol": plan.protocol.model_dump() | changes})


def with_split(plan: Plan, generator_gpus: int, **changes: Any) -> Plan:
    """Return the plan with another number of generator GPUs (and other top-level values), checked again."""
    return parse_plan(plan.model_dump() | {"generator_gpus": generator_gpus} | changes)


def _one_sentence(error: ValidationError) -> str:
    """Say the first problem of a validation in one sentence; a misspelt key before what is then missing."""
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    where = ".".join(str(part) for part in first["loc"]) or "the plan"
    if first["type"] == "extra_forbidden":
        known = _keys(first["loc"][:-1])
        guess = nearest(str(first["loc"][-1]), known)
        hint = f"did you mean {guess!r}?" if guess else "see the list."
        return f"unknown key {where!r} in the plan; {hint} Known: {', '.join(known)}."
    if first["type"] == "missing":
        return f"the plan lacks {where!r}; add it (examples/plans shows complete plans)."
    bound = first.get("ctx", {}).get("ge", first.get("ctx", {}).get("le"))
    near = "" if bound is None else f"; the nearest plan that can run has {bound:g}"
    return (
        f"{where} in the plan is wrong: {first['msg'][0].lower()}{first['msg'][1:]}, got {first.get('input')!r}{near}."
    )


def _keys(section: tuple[int | str, ...]) -> list[str]:
    """Return the keys of a section of the plan."""
    model: Any = Plan
    for part in section:
        annotation = model.model_fields[part].annotation
        options = (annotation, *getattr(annotation, "__args__", ()))
        model = next(option for option in options if hasattr(option, "model_fields"))
    return list(model.model_fields)


def _check_runs(plan: Plan) -> None:
    """Refuse a plan that could not make a step, with the nearest that could."""
    if (plan.hardware is None) == (plan.costs is None):
        raise ConfigError("a plan has either [hardware] (gpu, model) or [costs] (seconds); give exactly one of them.")
    _check_split(plan)
    _check_batch(plan.batch)
    _check_protocol(plan)
    if plan.lengths.kind == "empirical" and not plan.lengths.values:
        raise ConfigError("lengths.kind 'empirical' needs lengths.values, the lengths of a trace; give at least one.")
    if plan.tools.turns > plan.tools.max_turns:
        raise ConfigError(
            f"tools.turns = {plan.tools.turns:g} exceeds tools.max_turns = {plan.tools.max_turns}; raise max_turns to "
            f"{int(plan.tools.turns) + 1}."
        )


def _check_split(plan: Plan) -> None:
    gpus, pool, tp = plan.gpus, plan.generator_gpus, plan.tensor_parallel
    if plan.colocated:
        if gpus % tp:
            raise ConfigError(
                f"gpus = {gpus} is no multiple of tensor_parallel = {tp}; the nearest plan that can run has "
                f"gpus = {max(tp, gpus // tp * tp)}."
            )
        return
    if pool < gpus and pool >= tp and pool % tp == 0:
        return
    most = (gpus - 1) // tp * tp
    if most == 0:
        raise ConfigError(
            f"{gpus} GPUs cannot be split into a generator of {tp} and a trainer; the nearest plan that can run has "
            f"gpus = {tp + 1}, or mode colocated-sync."
        )
    wrong = "leaves no generator" if pool < tp else "leaves no trainer" if pool >= gpus else "is no multiple"
    raise ConfigError(
        f"generator_gpus = {pool} of {gpus} GPUs with tensor_parallel = {tp} {wrong}; the nearest plan that can run "
        f"has generator_gpus = {min(most, max(tp, pool // tp * tp))}."
    )


def _check_batch(batch: Batch) -> None:
    if (batch.groups is None) == (batch.trajectories is None):
        raise ConfigError("a batch is given by batch.groups or by batch.trajectories; give exactly one of them.")
    if batch.trajectories is not None and batch.trajectories % batch.rollouts:
        near = max(1, round(batch.trajectories / batch.rollouts)) * batch.rollouts
        what = "is larger than" if batch.rollouts > batch.trajectories else "does not divide"
        raise ConfigError(
            f"a group of {batch.rollouts} rollouts {what} the batch of {batch.trajectories} trajectories; the nearest "
            f"plan that can run has batch.trajectories = {near}."
        )


def _check_protocol(plan: Plan) -> None:
    protocol, groups, updates = plan.protocol, plan.batch.size, plan.batch.updates
    bound = protocol.max_inter + protocol.max_intra
    if protocol.mode == "async" and bound < updates:
        raise ConfigError(
            f"async with a staleness bound of {protocol.max_inter} + {protocol.max_intra} versions cannot overlap "
            f"anything; the nearest plan that can run has protocol.max_inter = {updates}, or mode split-sync."
        )
    behind = (protocol.sync_every - 1) * updates
    if protocol.mode == "async" and protocol.max_inter < behind + updates - 1:
        raise ConfigError(
            f"with sync_every = {protocol.sync_every} generators are up to {behind} versions behind, more than "
            f"max_inter = {protocol.max_inter}; the nearest plan that can run has max_inter = {behind + updates - 1}."
        )
    if protocol.mode != "async" and protocol.sync_every != 1:
        raise ConfigError(f"mode {protocol.mode} sends weights after every batch; set sync_every = 1, or use async.")
    if protocol.buffer_groups is not None and protocol.buffer_groups < groups:
        raise ConfigError(
            f"buffer_groups = {protocol.buffer_groups} cannot hold a batch of {groups} groups; the nearest plan that "
            f"can run has buffer_groups = {groups}."
        )
