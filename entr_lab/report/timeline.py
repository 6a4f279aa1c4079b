"""The timeline of a plan: a lane per generator and one for the trainer, coloured by weight version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from entr_lab.errors import DataError
from entr_lab.sim.idle import Segment

__all__ = ["write_timeline"]

_WORKING = ("generating", "training")
_COLOURS = {"weights": "black", "failed": "red", "tools": "0.75"}
_MAX_LANES = 24
_MAP = "viridis"


def write_timeline(path: Path, timeline: Mapping[str, Sequence[Segment]], *, title: str, steps: int = 12) -> list[str]:
    """Draw the last `steps` weight versions of a run as a PNG; returns the lanes that were drawn, bottom first.

    Working stretches take the colour of the weight version that they work with; weight updates are black, repairs
    red, tool waits grey, any other idleness white. With more than 24 generators, 24 of them are drawn, evenly spread.

    Raises:
        DataError: the run was made without a timeline.
    """
    names = sorted(name for name in timeline if name != "trainer")
    if not timeline.get("trainer"):
        raise DataError("this run kept no timeline; simulate it with timeline=True.")
    if len(names) > _MAX_LANES:
        names = [names[round(i * (len(names) - 1) / (_MAX_LANES - 1))] for i in range(_MAX_LANES)]
    lanes = [*names, "trainer"]
    end = max(segment.end for segment in timeline["trainer"])
    last = max(segment.version for segment in timeline["trainer"])
    recent = [segment.start for segment in timeline["trainer"] if segment.version >= last - steps]
    begin = min(recent)
    scale = Normalize(max(0, last - steps), max(1, last))
    figure = Figure(figsize=(11, 1.2 + 0.24 * len(lanes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    palette = colormaps[_MAP]
    for lane, name in enumerate(lanes):
        shown = [segment for segment in timeline[name] if segment.end > begin]
        drawn = [segment for segment in shown if segment.state in _WORKING or segment.state in _COLOURS]
        axes.broken_barh(
            [(max(segment.start, begin), segment.end - max(segment.start, begin)) for segment in drawn],
            (lane - 0.4, 0.8),
            facecolors=[
                palette(scale(segment.version)) if segment.state in _WORKING else _COLOURS[segment.state]
                for segment in drawn
            ],
        )
    axes.set_yticks(range(len(lanes)), lanes, fontsize=7)
    axes.set_xlim(begin, end)
    axes.set_xlabel("virtual time, s")
    axes.set_title(title, fontsize=9)
    figure.colorbar(ScalarMappable(scale, palette), ax=axes, label="weight version", pad=0.01)
    handles = [Patch(color=colour, label=state) for state, colour in _COLOURS.items()]
    axes.legend(handles=handles, loc="upper left", ncols=3, fontsize=7)
    figure.savefig(path, format="png")
    return lanes
