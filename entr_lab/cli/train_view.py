"""What `entr-lab train` shows: one line a batch, and a live panel on a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console

    from entr_lab.real.evaluation import Evaluation
    from entr_lab.real.step_report import StepReport

__all__ = ["COLUMNS", "TrainView", "step_cells"]

COLUMNS = ("step", "reward", "staleness", "masked", "entropy", "tokens/s", "steps/min", "ETA")
_RECENT = 12


def step_cells(report: StepReport, batches: int) -> tuple[str, ...]:
    """Return the cells of one batch, in the order of `COLUMNS`."""
    m = report.metrics
    left = (batches - report.step - 1) / max(m["steps_per_minute"], 1e-9) * 60
    return (
        f"{report.step + 1}/{batches}",
        f"{m['reward_mean']:.3f}",
        f"{m.get('staleness_mean', 0.0):.2f} (max {m.get('staleness_max', 0.0):.0f})",
        f"{m.get('masked_frac', 0.0):.2%}",
        f"{m.get('entropy_pi', float('nan')):.3f}",
        f"{m['rollout_tokens_per_second']:.0f}",
        f"{m['steps_per_minute']:.1f}",
        f"{int(left) // 60}:{int(left) % 60:02d}",
    )


class TrainView:
    """Shows a run while it goes on, as a context manager.

    Args:
        screen: where to.
        batches: of the run.
    """

    def __init__(self, screen: Console, batches: int) -> None:
        self._screen, self._batches = screen, batches
        self._rows: list[tuple[str, ...]] = []
        self._times: dict[str, float] = {}
        self._live: Any = None
        self._printed = False
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        """Show one line with the time since the start."""
        line = f"[{time.monotonic() - self._began:6.1f} s] {text}"
        self._screen.print(line, highlight=False, markup=False, soft_wrap=True)

    def model(self, done: int, total: int) -> None:
        """Show how far the tiny model's warm start is."""
        if done == 1 or done % max(1, total // 5) == 0:
            self.say(f"building the tiny model, once: {done} of {total} steps")

    def step(self, report: StepReport) -> None:
        """Show one batch."""
        self._rows = [*self._rows, step_cells(report, self._batches)][-_RECENT:]
        self._times = {name: share for name, share in report.metrics.items() if name.startswith("time/")}
        if not self._screen.is_terminal:
            self._print_line()
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._screen, auto_refresh=False)
            self._live.start()
        self._live.update(self._panel(), refresh=True)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Show one evaluation."""
        m = evaluation.metrics
        failed = f", {evaluation.failed} failed" if evaluation.failed else ""
        self.say(
            f"evaluation after {evaluation.done} batches: reward {m['reward_mean']:.3f} ± "
            f"{m['reward_standard_error']:.3f} s.e. over {evaluation.rollouts} held-out rollouts{failed}"
        )

    def _print_line(self) -> None:
        widths = (9, 7, 17, 8, 8, 9, 10, 7)
        if not self._printed:
            header = "".join(name.rjust(width) for name, width in zip(COLUMNS, widths, strict=True))
            self._screen.print(header, highlight=False, soft_wrap=True)
            self._printed = True
        cells = "".join(cell.rjust(width) for cell, width in zip(self._rows[-1], widths, strict=True))
        self._screen.print(cells, highlight=False, soft_wrap=True)

    def _panel(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
        for name in COLUMNS:
            table.add_column(name, justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        return Group(table, *self._accounts())

    def _accounts(self) -> list[str]:
        """Return one line for each worker: where its time went."""
        lines: dict[str, list[str]] = {}
        for name, share in self._times.items():
            _, worker, state = name.split("/", 2)
            lines.setdefault(worker, []).append(f"{state} {share:.0%}")
        return [f"{worker}: {', '.join(parts)}" for worker, parts in lines.items()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._printed:
            for line in self._accounts():
                self._screen.print(line, highlight=False, soft_wrap=True)
