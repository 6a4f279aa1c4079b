"""How a clause fails: an `AssertionError` that names the clause and the first token that breaks it."""

from __future__ import annotations

from torch import Tensor

from entr_lab.tokens import TokenBatch

__all__ = ["agree", "require"]


def require(condition: bool, clause: str) -> None:
    """Raise `AssertionError`; an `assert` would vanish under `python -O`, and pytest would not rewrite it here."""
    if not condition:
        raise AssertionError(clause)


def agree(clause: str, holds: Tensor, batch: TokenBatch) -> None:
    """Raise unless the clause holds for every token; describe the first where it does not."""
    wrong = (~holds).nonzero()[:, 0].tolist()
    if not wrong:
        return
    columns = (("δ", batch.log_ratio), ("log μ", batch.logp_mu), ("H", batch.entropy_mu), ("A", batch.advantage))
    values = ", ".join(f"{label}={float(values[wrong[0]]):.9g}" for label, values in columns)
    raise AssertionError(f"{clause}: {len(wrong)} of {len(holds)} tokens, the first at {wrong[0]} with {values}")
