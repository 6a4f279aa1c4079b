"""A run's batches, through the trace and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from entr_lab.pipeline import Admission, PipelineConfig
from entr_lab.real.config import RunConfig
from entr_lab.traces.recording import trace_observer
from entr_lab.traces.schema import read_metadata
from entr_lab.traces.writer import read_trace
from tests.real.loop_fakes import Bench


def test_every_token_of_every_batch_is_in_the_trace(tmp_path: Path) -> None:
    config = PipelineConfig(admission=Admission.asynchronous(3, 2), batch_groups=3, group_size=2)
    bench = Bench(config, batches=4)
    bench.run()
    write = trace_observer(RunConfig(), tmp_path / "trace", "m", 12)
    for report in bench.reports:
        write(report)
    write(bench.reports[0])  # a resumed run writes a step again

    tokens, sequences = read_trace(tmp_path / "trace")
    rollouts = [r for report in bench.reports for group in report.rollouts for r in group]
    expected = np.concatenate([r.weight_version for r in rollouts])
    np.testing.assert_array_equal(tokens["weight_version"].to_numpy(), expected)
    tickets = [t.ticket for report in bench.reports for group in report.batch.groups for t in group.done]
    assert sequences["sequence"].to_pylist() == tickets
    assert sequences["reward"].to_pylist() == [r.reward for r in rollouts]
    assert sequences["target_version"].to_pylist() == [t for t in range(4) for _ in range(6)]
    assert sequences["sample_id"].to_pylist() == [r.sample["id"] for r in rollouts]
    assert read_metadata(tmp_path / "trace").method == "entr"
