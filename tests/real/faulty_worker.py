"""A worker whose faults can be switched on: what vLLM does without our repair of the tied head."""

from __future__ import annotations

from entr_lab.real import engine_hook, weight_loading

_repair = weight_loading.refresh_tied_head


class FaultyWorker(engine_hook.WorkerExtension):
    def stock_reload(self, on: bool) -> None:
        """Leave a tied head as vLLM's reload leaves it, or repair it again."""
        weight_loading.refresh_tied_head = (lambda model: None) if on else _repair
