"""The figures are written, and are not blank."""

import matplotlib.image as mpimg

from entr_lab.report.theory_plots import draw_all


def test_four_figures(tmp_path):
    paths = draw_all(tmp_path)
    assert sorted(p.name for p in paths) == ["boundaries.png", "envelope.png", "error_by_threshold.png", "phi.png"]
    for path in paths:
        assert mpimg.imread(path)[..., :3].std() > 0.02
