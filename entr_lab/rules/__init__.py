"""Keep rules: which tokens of a stale batch to trust. One rule a file, one line each in `RULES`."""

from entr_lab.rules.base import BoundedRule, KeepRule, Reduce, Scope, Side, finite, local
from entr_lab.rules.entr import Entr
from entr_lab.rules.entr_envelope import EntrEnvelope
from entr_lab.rules.entr_gini import EntrGini
from entr_lab.rules.entr_halves import EntrExplore, EntrOutlier
from entr_lab.rules.fixed import Fixed
from entr_lab.rules.icepop import IcePop
from entr_lab.rules.keep_all import KeepAll
from entr_lab.rules.kpop import Kpop
from entr_lab.rules.m2po import M2po
from entr_lab.rules.micro_batches import keep_micro_batches
from entr_lab.rules.registry import RULES, make_rule, rule_names

__all__ = [
    "RULES",
    "BoundedRule",
    "Entr",
    "EntrEnvelope",
    "EntrExplore",
    "EntrGini",
    "EntrOutlier",
    "Fixed",
    "IcePop",
    "KeepAll",
    "KeepRule",
    "Kpop",
    "M2po",
    "Reduce",
    "Scope",
    "Side",
    "finite",
    "keep_micro_batches",
    "local",
    "make_rule",
    "rule_names",
]
