"""The costs of a plan: from its chips and its model, or as the user measured them."""

from __future__ import annotations

from entr_lab.sim.plan_hardware import engine_costs, slots, sync_costs, trainer_costs
from entr_lab.sim.plan_schema import Plan
from entr_lab.sim.time_costs import EngineCosts, SyncCosts, TrainerCosts

__all__ = ["costs_of", "mean_context"]


def mean_context(plan: Plan) -> float:
    """Return the mean context of a running sequence, in tokens.

    A sequence seen at a random moment is a long one more often than not: it has E[L²]/(2E[L]) response tokens so far.
    """
    mean, square = plan.workload().moments()
    return plan.lengths.prompt + plan.tools.tokens * (plan.tools.turns - 1.0) / 2.0 + square / (2.0 * mean)


def costs_of(plan: Plan) -> tuple[EngineCosts, TrainerCosts, SyncCosts]:
    """Return what a generator, the trainer and a weight update of the plan cost.

    Raises:
        ConfigError: the model does not fit the generators.
        UnknownNameError: the GPU or the model is not in the tables.
    """
    recompute = plan.protocol.recompute_kv
    if plan.hardware is not None:
        gpu, model = plan.hardware.gpu, plan.hardware.model
        running = slots(gpu, model, plan.tensor_parallel, mean_context(plan))
        return (
            engine_costs(gpu, model, plan.tensor_parallel, running).scaled(plan.hardware.decode_scale),
            trainer_costs(gpu, model, plan.trainer_gpus, plan.hardware.forward_passes).scaled(
                plan.hardware.trainer_scale
            ),
            sync_costs(model, plan.tensor_parallel, recompute),
        )
    costs = plan.costs
    assert costs is not None  # parse_plan demands one of the two
    return (
        EngineCosts.linear(
            costs.decode_fixed,
            costs.decode_per_sequence,
            costs.slots,
            kv=costs.decode_per_context_token,
            prefill=costs.prefill_per_token,
        ),
        TrainerCosts(costs.trainer_fixed, costs.trainer_per_token / plan.trainer_gpus),
        SyncCosts(costs.transfer, recompute),
    )
