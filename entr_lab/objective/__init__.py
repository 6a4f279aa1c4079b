"""What peers weld together, kept apart: anchor × keep mask × detached weight × surrogate × reduction."""

from entr_lab.objective.advantages import Advantage, dr_grpo_advantage, group_advantage, grpo_advantage
from entr_lab.objective.loss import Decision, PolicyLoss, decide, decide_micro_batches, policy_loss
from entr_lab.objective.methods import (
    METHODS,
    Method,
    UncappedOutwardWarning,
    get_method,
    method_names,
    parse_method,
)
from entr_lab.objective.ratios import Anchor, LogRatios, log_ratios
from entr_lab.objective.reductions import Denominator, Reduction, coefficients
from entr_lab.objective.surrogates import SURROGATES, PlainRatio, PpoClip, Surrogate, make_surrogate
from entr_lab.objective.weights import Weight, WeightKind, log_factor

__all__ = [
    "METHODS",
    "SURROGATES",
    "Advantage",
    "Anchor",
    "Decision",
    "Denominator",
    "LogRatios",
    "Method",
    "PlainRatio",
    "PolicyLoss",
    "PpoClip",
    "Reduction",
    "Surrogate",
    "UncappedOutwardWarning",
    "Weight",
    "WeightKind",
    "coefficients",
    "decide",
    "decide_micro_batches",
    "dr_grpo_advantage",
    "get_method",
    "group_advantage",
    "grpo_advantage",
    "log_factor",
    "log_ratios",
    "make_surrogate",
    "method_names",
    "parse_method",
    "policy_loss",
]
