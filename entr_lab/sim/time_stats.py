"""What the time level counts while it runs, and the record that a run returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from entr_lab.pipeline.decisions import Batch
from entr_lab.pipeline.drop_bias import Shift
from entr_lab.sim.idle import Segment
from entr_lab.sim.schedule import Steps, steps_of

__all__ = ["Area", "StalenessTally", "TimeResult", "mean_of", "quantile_of"]


def mean_of(counts: Mapping[int, int]) -> float:
    """Return the mean of a histogram `{value: count}`; 0 if it is empty."""
    total = sum(counts.values())
    return sum(value * count for value, count in counts.items()) / total if total else 0.0


def quantile_of(counts: Mapping[int, int], share: float) -> int:
    """Return the smallest value with at least `share` of the counts at or below it; 0 if the histogram is empty."""
    wanted, seen = share * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    return 0


@dataclass(slots=True)
class Area:
    """Time average of an integer that jumps.

    With steps s at times t the integral from 0 to T is Σ s·(T − t), so that one sum of moments s·t is enough.
    """

    value: int = 0
    largest: int = 0
    moment: float = 0.0

    def change(self, now: float, step: int) -> None:
        """Add `step` at `now` (s)."""
        self.value = value = self.value + step
        self.moment += step * now
        if value > self.largest:
            self.largest = value

    def leave(self, times: Sequence[float]) -> None:
        """Take away 1 at each of `times` (s)."""
        self.value -= len(times)
        self.moment -= sum(times)

    def mean(self, now: float) -> float:
        """Return the time average from 0 to `now` (s)."""
        return self.value - self.moment / now if now > 0 else 0.0


@dataclass(slots=True)
class StalenessTally:
    """Lags of everything that was trained on, and a sample of it as step functions.

    Attributes:
        inter: trajectories by inter lag.
        intra: trajectories by intra lag.
        token: tokens by staleness.
        sample: step functions of up to `per_batch` trajectories of each batch, spread evenly over it.
    """

    per_batch: int = 0
    inter: Counter[int] = field(default_factory=Counter)
    intra: Counter[int] = field(default_factory=Counter)
    token: Counter[int] = field(default_factory=Counter)
    sample: list[Steps] = field(default_factory=list)

    def add(self, batch: Batch) -> int:
        """Count a batch that is trained from its target version; returns its tokens."""
        target = batch.target_version
        # Plain dictionaries by version first: a Counter takes several times as long.
        ends: dict[tuple[int, int], int] = {}
        tokens: dict[int, int] = {}
        for group in batch.groups:
            for trajectory in group.done:
                spans = trajectory.spans
                pair = spans[0][0], spans[-1][0]
                ends[pair] = ends[pair] + 1 if pair in ends else 1
                for version, start, stop in spans:
                    tokens[version] = tokens[version] + stop - start if version in tokens else stop - start
        for (first, last), count in ends.items():
            self.inter[target - last] += count
            self.intra[last - first] += count
        for version, count in tokens.items():
            self.token[target - version] += count
        if self.per_batch:
            everyone = [trajectory for group in batch.groups for trajectory in group.done]
            stride = max(1, len(everyone) // self.per_batch)
            chosen = everyone[::stride][: self.per_batch]
            self.sample += [steps_of(trajectory.spans, target) for trajectory in chosen]
        return sum(tokens.values())


@dataclass(frozen=True, slots=True)
class TimeResult:
    """One run of the time level.

    Rates and staleness leave out the first `warm_up` steps; the accounts cover the whole run and sum to `seconds`.

    Attributes:
        plan: name of the plan.
        mode: its protocol mode.
        steps: trainer steps (batches) that were made.
        seconds: virtual wall-clock of the run.
        warm_up: steps left out of the rates.
        seconds_per_step: mean time between two published versions.
        tokens_per_second: trained response tokens per second.
        tokens_per_gpu_second: the same per GPU of the plan.
        accounts: seconds by state, for every resource; each sums to `seconds`.
        generator_busy: share of generator time that decodes.
        generator_fill: mean number of running sequences while a generator decodes.
        trainer_busy: share of the trainer's time that trains.
        inter: trained trajectories by inter lag, in versions.
        intra: trained trajectories by intra lag.
        token_staleness: trained tokens by staleness.
        queue_mean: time average of finished groups that wait for the trainer; `queue_max` is the most.
        in_flight_mean: time average of rollouts between dispatch and completion.
        rollout_seconds: mean time from dispatch to completion of a finished rollout.
        rollouts: finished rollouts.
        groups_dropped: groups given up, by reason.
        rollouts_lost: starts that came to nothing, by reason.
        drop_bias: trained against dispatched groups; `difficulty` is the mean length that a group asks for, known
            even of groups that were never finished.
        events: turns that ended, and whatever else happened; alarms that were put off are none.
        sample: step functions of trained trajectories, for a schedule.
        timeline: stretches by resource, if they were asked for.
    """

    plan: str
    mode: str
    steps: int
    seconds: float
    warm_up: int
    seconds_per_step: float
    tokens_per_second: float
    tokens_per_gpu_second: float
    accounts: dict[str, dict[str, float]]
    generator_busy: float
    generator_fill: float
    trainer_busy: float
    inter: dict[int, int]
    intra: dict[int, int]
    token_staleness: dict[int, int]
    queue_mean: float
    queue_max: int
    in_flight_mean: float
    rollout_seconds: float
    rollouts: int
    groups_dropped: dict[str, int]
    rollouts_lost: dict[str, int]
    drop_bias: tuple[Shift, ...]
    events: int
    sample: tuple[Steps, ...]
    timeline: dict[str, tuple[Segment, ...]]

    def idle(self, kind: str) -> dict[str, float]:
        """Return seconds by state over all resources whose name starts with `kind` ("generator", "trainer")."""
        total: Counter[str] = Counter()
        for name, seconds in self.accounts.items():
            if name.startswith(kind):
                total.update(seconds)
        return dict(total)
