"""Run records become Parquet and plots, shortened runs of an interrupted comparison too."""

import pyarrow.parquet as pq

from entr_lab.report.learning_files import write_curves, write_metrics, write_planes
from tests.report.records import METHODS, record


def test_writes_tables_and_plots_of_unequal_runs(tmp_path):
    runs = [record("sync-grpo", 1), record("sync-grpo", 2, updates=20), record("entr", 1)]

    write_metrics(runs, tmp_path)
    write_curves(METHODS, runs, tmp_path)
    write_planes(METHODS, runs, tmp_path)

    assert pq.read_table(tmp_path / "updates.parquet").num_rows == 80
    evaluations = pq.read_table(tmp_path / "evaluations.parquet").to_pydict()
    assert evaluations["seed"].count(2) == 5
    assert (tmp_path / "reward.png").exists()
    assert not list(tmp_path.glob("plane-*"))  # no snapshots were taken
