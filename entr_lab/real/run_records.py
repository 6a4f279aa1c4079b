"""Where the numbers of a run go: its files, its trackers, and whoever watches. Ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from entr_lab.real.config import RunConfig
from entr_lab.real.evaluation import Evaluation
from entr_lab.real.run_folder import MetricsFile
from entr_lab.real.step_report import StepReport
from entr_lab.real.trackers import Trackers

__all__ = ["Observers", "RunRecords"]


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told what.

    Args:
        say: one line about the progress of the start.
        step: each batch.
        evaluation: each evaluation.
        model: (steps done, steps in all) of the tiny model's warm start.
        trace: opens the trace of configuration, folder, model and vocabulary, and returns what adds a batch to it.
    """

    say: Callable[[str], None] = lambda text: None
    step: Sequence[Callable[[StepReport], None]] = field(default_factory=tuple)
    evaluation: Sequence[Callable[[Evaluation], None]] = field(default_factory=tuple)
    model: Callable[[int, int], None] | None = None
    trace: Callable[[RunConfig, Path, str, int], Callable[[StepReport], None]] | None = None


class RunRecords:
    """Writes every batch and every evaluation.

    Args:
        config: of the run.
        folder: of the run.
        done: batches trained; what the files say of later ones is dropped.
        observers: who is told.

    Raises:
        ConfigError: a wanted tracker is not installed.
        EngineError: a file cannot be written.
    """

    def __init__(self, config: RunConfig, folder: Path, done: int, observers: Observers) -> None:
        self._observers = observers
        self._trackers = Trackers(config, folder, done)
        self._metrics = MetricsFile(folder / "metrics.jsonl", done)
        self._evaluations = MetricsFile(folder / "evaluations.jsonl", done) if config.evaluation.every else None

    def step(self, report: StepReport) -> None:
        """Record a batch."""
        self._metrics.write(report.step, {"version": report.train.version, **report.metrics})
        self._trackers.write(report.step, report.metrics)
        for observer in self._observers.step:
            observer(report)

    def evaluation(self, evaluation: Evaluation) -> None:
        """Record an evaluation."""
        counts = {"rollouts": evaluation.rollouts, "failed": evaluation.failed}
        if self._evaluations is not None:
            self._evaluations.write(evaluation.done, {**counts, **evaluation.metrics})
        self._trackers.write(evaluation.done, {f"evaluation/{name}": v for name, v in evaluation.metrics.items()})
        for observer in self._observers.evaluation:
            observer(evaluation)

    def close(self) -> None:
        """Bring everything to its place."""
        self._metrics.close()
        if self._evaluations is not None:
            self._evaluations.close()
        self._trackers.close()
