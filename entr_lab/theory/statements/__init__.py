"""Every statement in one table, and how to run one: adversary, identities, measured laws, certificates."""

from __future__ import annotations

from dataclasses import dataclass

from entr_lab.errors import TheoryError, check_choice
from entr_lab.theory.certificates import Certificate
from entr_lab.theory.statements import boundary, divergence, entropy, masking, sign
from entr_lab.theory.statements.base import SHARP, Finding, Part, Search, Statement, check_parts

__all__ = ["STATEMENTS", "Finding", "Part", "Result", "Search", "Statement", "check_parts", "run_statement"]

STATEMENTS: dict[str, Statement] = {
    statement.id: statement
    for module in (divergence, entropy, boundary, masking, sign)
    for statement in module.STATEMENTS
}


@dataclass(frozen=True, slots=True)
class Result:
    """A statement with everything that was found about it."""

    id: str
    title: str
    source: str
    proof: str
    holds: bool
    worst: float | None  # largest left/right over its inequalities; None if it has none
    sharp: str  # "attained", "not reached" or "not claimed"
    findings: list[Finding]
    certificates: list[Certificate]
    undecided: str = ""

    @property
    def slack(self) -> float | None:
        """1 − worst: what is left before equality."""
        return None if self.worst is None else 1.0 - self.worst


def run_statement(name: str, how: Search, *, bits: int = 128) -> Result:
    """Check one statement and its certificates; a violation is reported in the result, not raised.

    Raises:
        UnknownNameError: no such statement.
    """
    statement = STATEMENTS[check_choice("statement", name, STATEMENTS)]
    findings = statement.check(how)
    ratios = [f.worst for f in findings if f.kind == "inequality"]
    claimed = [f.worst >= SHARP for f in findings if f.sharp]
    certificates: list[Certificate] = []
    undecided = ""
    try:
        certificates = statement.certify(bits=bits)
    except TheoryError as error:
        undecided = str(error)
    return Result(
        statement.id,
        statement.title,
        statement.source,
        statement.proof,
        all(f.holds for f in findings) and not undecided,
        max(ratios) if ratios else None,
        "not claimed" if not claimed else "attained" if all(claimed) else "not reached",
        findings,
        certificates,
        undecided,
    )
