"""All generators of a run: which one takes new weights, and which begins which rollout. The pipeline decides. Ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from entr_lab.pipeline import Pipeline, Trajectory, Wait
from entr_lab.real.evaluation import Evaluations
from entr_lab.real.station import Station

__all__ = ["Fleet"]


class Fleet:
    """The stations by worker name.

    Args:
        stations: of one pipeline's workers.
        pipeline: what decides.
        room: rollouts that one station takes at a time.
    """

    def __init__(self, stations: Mapping[str, Station], pipeline: Pipeline, room: int) -> None:
        self._stations, self._pipeline, self._room = stations, pipeline, room

    @property
    def idle(self) -> bool:
        """Whether nothing at all is under way."""
        return all(station.idle for station in self._stations.values())

    @property
    def lost(self) -> bool:
        """Whether no generator is there and none comes back."""
        return not any(station.present or station.coming for station in self._stations.values())

    def bring_up(self) -> None:
        """Start all of them."""
        for station in self._stations.values():
            station.bring_up()

    def revive(self, name: str) -> None:
        """Start one again."""
        self._stations[name].bring_up(revive=True)

    def advance(self, evaluations: Evaluations, now: float) -> dict[str, str]:
        """Load weights, play held-out samples and begin rollouts wherever that may be; return what each now does."""
        present = [station for station in self._stations.values() if station.present]
        for station in present:
            if station.busy:
                continue
            plan = self._pipeline.plan_update(station.name)
            if plan.version is None:
                evaluations.advance(station)
            else:
                station.update(plan.version)
        reasons = self._dispatch(present, now)
        return {name: self._state(station, reasons) for name, station in self._stations.items()}

    def stop(self, rollouts: Iterable[Trajectory]) -> None:
        """Stop rollouts that are not wanted any more."""
        for trajectory in rollouts:
            self._stations[trajectory.worker].stop(trajectory.ticket)

    async def close(self) -> None:
        """Stop everything; the generators stay."""
        await asyncio.gather(*(station.close() for station in self._stations.values()), return_exceptions=True)

    def _dispatch(self, stations: list[Station], now: float) -> dict[str, str]:
        """Begin what may begin, on the least loaded station first; return for each why no more.

        Also while it loads, or its batch would shrink: what starts then may live through the update, or is refused.
        """
        pipeline, reasons = self._pipeline, {}
        most = self._room if len(stations) == 1 else pipeline.config.group_size
        while stations:
            station = min(stations, key=lambda station: station.active)
            answer = pipeline.dispatch(station.name, min(most, self._room - station.active), now)
            if isinstance(answer, Wait):
                reasons[station.name] = str(answer.reason)
                stations.remove(station)
                continue
            for trajectory in answer:
                station.start(trajectory, int(pipeline.prompt(trajectory.group).id))
        return reasons

    @staticmethod
    def _state(station: Station, reasons: Mapping[str, str]) -> str:
        if not station.present:
            return "starting"
        if station.busy:
            return "loads"
        return "generates" if station.active else f"waits: {reasons[station.name]}"
