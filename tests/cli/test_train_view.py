"""What a run shows, on a file and on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from entr_lab.cli.train_view import COLUMNS, TrainView, step_cells
from entr_lab.pipeline import Admission, PipelineConfig
from tests.real.loop_fakes import Bench


@pytest.fixture(scope="module")
def bench() -> Bench:
    made = Bench(PipelineConfig(admission=Admission.asynchronous(3, 2), batch_groups=3, group_size=2), batches=4)
    made.run()
    for report in made.reports:
        report.metrics.update(staleness_mean=1.25, staleness_max=3.0, masked_frac=0.0123, entropy_pi=0.5)
    return made


def test_cells(bench: Bench) -> None:
    cells = dict(zip(COLUMNS, step_cells(bench.reports[1], 4), strict=True))
    assert cells["step"] == "2/4"
    assert cells["reward"] == f"{bench.reports[1].metrics['reward_mean']:.3f}"
    assert (cells["staleness"], cells["masked"], cells["entropy"]) == ("1.25 (max 3)", "1.23%", "0.500")


def test_a_file_gets_one_line_a_batch_and_the_accounts(bench: Bench) -> None:
    text = io.StringIO()
    with TrainView(Console(file=text, width=100), 4) as view:
        view.say("starting Ray")
        for report in bench.reports:
            view.step(report)
    lines = text.getvalue().splitlines()
    assert "starting Ray" in lines[0]
    assert lines[1].split()[:3] == ["step", "reward", "staleness"]
    assert [line.split()[0] for line in lines[2:6]] == ["1/4", "2/4", "3/4", "4/4"]
    assert [line.split(":")[0] for line in lines[6:]] == ["g0", "g1", "trainer"]


def test_a_terminal_gets_a_panel_that_is_drawn_anew(bench: Bench) -> None:
    text = io.StringIO()
    with TrainView(Console(file=text, width=100, force_terminal=True), 4) as view:
        for report in bench.reports:
            view.step(report)
    assert text.getvalue().count("1/4") >= 4
    assert "trainer: " in text.getvalue()


def test_the_warm_start_is_told_in_few_lines() -> None:
    text = io.StringIO()
    with TrainView(Console(file=text, width=100), 4) as view:
        for done in range(1, 301):
            view.model(done, 300)
    assert len(text.getvalue().splitlines()) == 6
