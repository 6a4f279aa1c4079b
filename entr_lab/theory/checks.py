"""Running all statements on the cores at hand, within a budget of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from entr_lab.errors import EngineError, check_choice, check_range
from entr_lab.theory.statements import STATEMENTS, Result, Search, run_statement

__all__ = ["DEFAULT_BUDGET", "verify"]

DEFAULT_BUDGET = 20.0
_ROUNDS = 120
# The slow ones first, so that no core is left alone with one of them; E3 and G4 share one set of runs.
_GROUPS = (("B4",), ("E3", "G4"), ("A2",), ("A6",), ("A3",), ("B5",), ("B1",))


def _run_group(names: Sequence[str], seed: int, rounds: int, deadline: float, bits: int) -> list[Result]:
    how = Search(seed, rounds, deadline)
    return [run_statement(name, how, bits=bits) for name in names]


def verify(
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    budget: float = DEFAULT_BUDGET,
    workers: int = 1,
    bits: int = 128,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Result]:
    """Check the named statements (all unless given) and return their results in the table's order.

    Args:
        names: statement ids.
        seed: of every search; the answer is the same for any number of workers unless the budget cuts a search.
        budget: seconds for the adversary; beyond the default it also climbs longer. Identities, measured laws and
            certificates take what they need.
        workers: processes.
        bits: working precision of the certificates.
        progress: called with statements done, statements in all, and the ids just finished.

    Raises:
        UnknownNameError: a statement does not exist.
        RangeError: the budget is not a positive number.
    """
    check_range("budget", budget, low=0.0, low_open=True, high=86_400.0)
    wanted = [check_choice("statement", n, STATEMENTS) for n in (names or STATEMENTS)]
    groups = [g for group in _GROUPS if (g := [n for n in group if n in wanted])]
    grouped = {n for group in groups for n in group}
    groups += [[n] for n in wanted if n not in grouped]
    rounds = max(_ROUNDS, int(_ROUNDS * budget / DEFAULT_BUDGET))
    tasks = [(g, seed, rounds, time.monotonic() + budget, bits) for g in groups]
    results: dict[str, Result] = {}

    def collect(found: list[Result]) -> None:
        results.update({r.id: r for r in found})
        if progress is not None:
            progress(len(results), len(wanted), ", ".join(r.id for r in found))

    if workers == 1 or len(tasks) == 1:
        for task in tasks:
            collect(_run_group(*task))
    else:
        try:
            with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
                for future in as_completed([pool.submit(_run_group, *task) for task in tasks]):
                    collect(future.result())
        except BrokenProcessPool:
            raise EngineError(
                "a worker process died, most likely for lack of memory; use one worker or check one statement."
            ) from None
    return [results[n] for n in STATEMENTS if n in results]
