"""What a driver may look at without changing anything."""

from __future__ import annotations

from typing import Any

from entr_lab.errors import ProtocolError
from entr_lab.pipeline.audit import audit
from entr_lab.pipeline.config import PipelineConfig
from entr_lab.pipeline.decisions import Batch, Reason
from entr_lab.pipeline.dispatch import nothing_to_start
from entr_lab.pipeline.records import Prompt, Worker
from entr_lab.pipeline.snapshot import dump
from entr_lab.pipeline.state import Counts, State

__all__ = ["PipelineView"]


class PipelineView:
    """The read-only half of `Pipeline`."""

    _state: State

    @property
    def config(self) -> PipelineConfig:
        """The settings."""
        return self._state.config

    @property
    def seq(self) -> int:
        """The number that the next event gets; events are numbered through crashes and resumes."""
        return self._state.seq

    @property
    def version(self) -> int:
        """The newest published version."""
        return self._state.version

    @property
    def target(self) -> int:
        """The version that the next batch will start from: the newest, counting a batch in training as published."""
        return self._state.target

    @property
    def oldest_needed(self) -> int:
        """Mode exact: the oldest version that a rollout may still have to be generated with."""
        admission = self.config.admission
        oldest = self._state.version - admission.max_inter - admission.max_intra
        return max(self.config.first_version, oldest)

    @property
    def counts(self) -> Counts:
        """What happened so far; live, do not change it."""
        return self._state.counts

    @property
    def ready_groups(self) -> int:
        """Finished groups that no batch has taken yet."""
        return len(self._state.ready)

    @property
    def open_groups(self) -> int:
        """Groups with rollouts that run or wait for a worker."""
        return len(self._state.open)

    @property
    def training(self) -> Batch | None:
        """The batch that was taken and not yet published."""
        return self._state.training

    @property
    def prompts_left(self) -> int:
        """Prompts that no group was opened for yet; add more before it is 0."""
        return len(self._state.prompts) + len(self._state.requeued)

    @property
    def workers(self) -> dict[str, int]:
        """The version of every worker's weights."""
        return {name: worker.version for name, worker in self._state.workers.items()}

    @property
    def next_deadline(self) -> float | None:
        """When `Pipeline.expire` has something to do at the earliest, or None."""
        limit = self.config.deadline
        if limit is None or not self._state.open:
            return None
        return next(iter(self._state.open.values())).opened + limit

    @property
    def closed_for(self) -> Reason | None:
        """Why no worker would be given a rollout now, whatever its weights; None if one might (ask `dispatch`)."""
        return nothing_to_start(self._state)

    def prompt(self, group: int) -> Prompt:
        """Return the prompt of an open group.

        Raises:
            ProtocolError: no such group is open.
        """
        try:
            return self._state.open[group].prompt
        except KeyError:
            raise ProtocolError(f"group {group} is not open; ask while one of its rollouts runs.") from None

    def running(self, worker: str) -> tuple[int, ...]:
        """Return the tickets that `worker` should be running; anything else that it runs may be stopped."""
        return tuple(self._worker(worker).held)

    def pending_rewards(self) -> tuple[int, ...]:
        """Return the tickets that were reported generated and have no reward yet."""
        return tuple(t.ticket for t in self._state.flight.values() if t.ended >= 0)

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data; `Pipeline.restore` is the inverse."""
        return dump(self._state)

    def audit(self) -> None:
        """Recount everything; costs one step per live rollout.

        Raises:
            ProtocolError: something was lost or counted twice.
        """
        audit(self._state)

    def _worker(self, worker: str) -> Worker:
        try:
            return self._state.workers[worker]
        except KeyError:
            raise ProtocolError(f"worker {worker!r} is unknown; report join() first.") from None
